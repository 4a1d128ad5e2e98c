"""Lose nodes of a real training of several nodes, announced and not; compare with plain torchrun.

    python -m bench.machines.nodes [--out FILE] [--losses 8] [--seed 0] [--no-torchrun]

Four nodes are processes of PyTorch over gloo on this machine (``tests/real/node_losses.py``); one after
another is lost, the host of rank 0 and of its store among them, and gets a successor. ``stalled_p95_s`` is
from a loss to the next step of the others, without a notice. Beside it, with the same script: torchrun's own
nodes, with a restart of all (``torchrun_stalled_s``, a successor at once), and with its elastic restart
(``torchrun_elastic_steps``: in a minute after a loss).
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.parts import needs
from bench.parts.run import parser_of, verdict, write
from tests.real import node_losses
from tests.real.environments import environment

COUNT: Final = 4
FEWEST: Final = 2
STALL_LIMIT_SECONDS: Final = 30.0


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of the values do not exceed; None without values."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def survivors(python: Path, folder: Path, losses: int, seed: int) -> dict[str, Any]:
    """Lose nodes of a training with `spot_training.torch.init`; return the figures."""
    training = node_losses.NodePlay(python, folder / "nodes", f"{FEWEST}:{COUNT}", ["ddp=false"])
    try:
        results = node_losses.play(training, count=COUNT, fewest=FEWEST, losses=losses, seed=seed)
        steps = training.steps()
    finally:
        training.end()
    expected = node_losses.reference(
        python, folder / "reference", steps[-1].step // node_losses.STEPS_PER_EPOCH + 2
    )
    noticed = [loss for loss in results if loss.kind == "notice"]
    sudden = [loss for loss in results if loss.kind != "notice"]
    return {
        "node_losses": len(results),
        "losses_of_rank_0": sum(loss.was_first for loss in results),
        "stalled_p95_s": percentile([loss.stalled_seconds for loss in sudden], 0.95),
        "stalled_median_s": percentile([loss.stalled_seconds for loss in sudden], 0.5),
        "stalled_with_notice_p95_s": percentile([loss.stalled_seconds for loss in noticed], 0.95),
        "steps_lost_with_notice": sum(loss.repeated_steps for loss in noticed),
        "steps_repeated_without": sum(loss.repeated_steps for loss in sudden),
        "saved_steps_repeated": sum(max(loss.repeated_steps - loss.unsaved_steps, 0) for loss in results),
        "wrong_samples": node_losses.wrong_samples(steps, expected),
        "missing_steps": node_losses.missing_steps(steps),
        "worlds": len({step.world for step in steps}),
        "losses": [asdict(loss) for loss in results],
    }


def problems(result: dict[str, Any]) -> list[str]:
    """Return what does not hold."""
    violations = [f"{name}: {result[name]}" for name in ("wrong_samples", "missing_steps") if result[name]]
    for name in ("steps_lost_with_notice", "saved_steps_repeated"):
        if result[name]:
            violations.append(f"{name} is {result[name]}, allowed: 0")
    stalled = result["stalled_p95_s"]
    if stalled is not None and stalled > STALL_LIMIT_SECONDS:
        violations.append(f"stalled_p95_s is {stalled:.1f}, allowed: {STALL_LIMIT_SECONDS:.0f}")
    return violations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return 1 if a step was lost at a notice, samples are wrong, or it stalled for too long."""
    parser = parser_of(__doc__, "nodes")
    parser.add_argument("--losses", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-torchrun", action="store_true", help="without the comparison")
    options = parser.parse_args(arguments)
    needs.frameworks(["torch"])
    python = environment("torch")
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as folder:
        result = survivors(python, Path(folder), options.losses, options.seed)
        if not options.no_torchrun:
            result |= node_losses.plain_torchrun(python, Path(folder) / "plain", COUNT)
            result |= node_losses.elastic_torchrun(python, Path(folder) / "elastic", COUNT)
    write(options.out, result)
    print(json.dumps({name: value for name, value in result.items() if name != "losses"}))
    return verdict(problems(result))


if __name__ == "__main__":
    sys.exit(main())
