"""Lose nodes of a real training, replay Spot traces.

    python -m research.libraries.nodes [--only replay losses torchrun] [--losses 8]
        [--minutes 60] [--seed 0] [--out FILE] [--docs .]

- ``losses``: four nodes are agents of torchrun over gloo on this machine (``frameworks/node_losses.py``); one
  after another is lost, the host of rank 0 and of its store among them, and gets a successor.
  ``stalled_p95_s`` is from a loss to the next step of the others, without a notice. 100 or more losses are
  written to the page.
- ``torchrun``: the same script on torchrun's own nodes, with a restart of all (``torchrun_stalled_s``, a
  successor at once), and with its elastic restart (``torchrun_elastic_steps``: in a minute after a loss).
- ``replay``: ``goodput_vs_restart_all`` on Spot traces, with what losses cost
  (``research/parts/node_replay``); only results on traces are written to the page.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from packages.environments import FRAMEWORKS, environment
from research.parts import needs, node_replay
from research.parts.page import replace_part, table
from research.parts.run import MACHINE, parser_of, verdict, write

sys.path += [str(FRAMEWORKS.parent), str(FRAMEWORKS.parents[2])]
node_losses: Any = importlib.import_module("frameworks.node_losses")
COUNT: Final = 4
FEWEST: Final = 2
STALL_LIMIT_SECONDS: Final = 30.0
SHOWN_LOSSES: Final = 100
"""Fewest losses whose figures are written to the page."""
KINDS: Final = {
    "notice": "with a notice",
    "process": "its training is killed",
    "machine": "all its processes are killed",
    "silent": "frozen, its connections stay",
}


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of the values do not exceed; None without values."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def survivors(python: Path, losses: int, seed: int, minutes: float) -> dict[str, Any]:
    """Lose nodes of a training with `spot_training.torch.init`, for so many minutes; return the figures."""
    launcher = [str(python / "torchrun"), "--standalone", "--nproc-per-node=1"]
    arguments = ["ddp=false", "pause=0.1"]
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as folder:
        training = node_losses.NodePlay(python, Path(folder), f"{FEWEST}:{COUNT}", arguments, launcher)
        try:
            results = node_losses.play(
                training, count=COUNT, fewest=FEWEST, losses=losses, seed=seed, seconds=60 * minutes
            )
            steps = training.steps()
        finally:
            training.end()
    expected = node_losses.expected_samples(python, steps[-1].step // node_losses.STEPS_PER_EPOCH + 2)
    noticed = [loss for loss in results if loss.kind == "notice"]
    sudden = [loss for loss in results if loss.kind != "notice"]
    return {
        "node_losses": len(results),
        "steps": len({step.step for step in steps}),
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
        "load": percentile([loss.load for loss in results], 0.5),
        "losses": [asdict(loss) for loss in results],
    }


def section(result: dict[str, Any]) -> str:
    """Return the part of the page about nodes that were lost."""
    rows = list[list[str]]()
    for kind, text in KINDS.items():
        losses = [loss for loss in result["losses"] if loss["kind"] == kind]
        stalled = [loss["stalled_seconds"] for loss in losses]
        repeated = sum(max(loss["repeated_steps"], 0) for loss in losses)
        times = [f"{percentile(stalled, share):.1f}" for share in (0.5, 0.95, 1.0)]
        rows.append([text, str(len(losses)), *times, str(repeated)])
    wrong = len(result["wrong_samples"]) + len(result["missing_steps"])
    texts = [
        "`make bench-nodes`: four torchrun agents with `spot_training.torch.init`, processes over gloo on two"
        f" cores that other work shares (load {result['load']:.0f}). {result['node_losses']} losses, two or"
        f" more nodes left at each, {result['losses_of_rank_0']} of the node with rank 0, its store and the"
        " saves; each node gets a successor. From a loss to the others' next step:",
        table(("lost", "times", "median s", "95 % s", "longest s", "steps again"), rows),
        f"Unannounced losses together: {result['stalled_p95_s']:.1f} s at the 95th percentile. Saved steps"
        f" that were repeated: {result['saved_steps_repeated']}; steps without their exact samples:"
        f" {wrong} of {result['steps']}.",
    ]
    if "torchrun_stalled_s" in result:
        texts.append(
            "The same script with plain torchrun on four nodes, one killed: all started again with a"
            f" successor at once, {result['torchrun_stalled_s']:.1f} s; elastic torchrun (3 to 4 nodes):"
            f" {result['torchrun_elastic_steps']} steps in the next minute."
        )
    return "## Nodes that are lost\n\n" + "\n\n".join(texts)


def problems(result: dict[str, Any]) -> list[str]:
    """Return what does not hold."""
    none = (*("wrong_samples", "missing_steps", "steps_lost_with_notice", "saved_steps_repeated"),)
    violations = [f"{name} must be 0, not {result[name]}" for name in none if result.get(name)]
    if (ratio := result.get("goodput_vs_restart_all")) is not None and ratio < 1:
        violations.append(f"goodput_vs_restart_all must be 1 or more, not {ratio:.3f}")
    stalled = result.get("stalled_p95_s")
    if stalled is not None and stalled > STALL_LIMIT_SECONDS:
        violations.append(f"stalled_p95_s must be at most {STALL_LIMIT_SECONDS:.0f}, not {stalled:.1f}")
    return violations


def plain(python: Path) -> dict[str, Any]:
    """Lose nodes of torchrun's own; return the figures."""
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as folder:
        return {
            **node_losses.plain_torchrun(python, Path(folder) / "plain", COUNT),
            **node_losses.elastic_torchrun(python, Path(folder) / "elastic", COUNT),
        }


def write_page(root: Path, result: dict[str, Any]) -> None:
    """Write the parts of the page that were measured as they are to be shown."""
    if result.get("source") == "traces" and result["goodput_vs_restart_all"]:
        replace_part(root, "nodes", node_replay.section(result))
    if result.get("node_losses", 0) >= SHOWN_LOSSES:
        replace_part(root, "node-losses", section(result))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return 1 if a step was lost at a notice, samples are wrong, or it stalled for too long."""
    parser = parser_of(__doc__, "nodes", docs=True)
    parts = ("replay", "losses", "torchrun")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts, help=f"of {', '.join(parts)}")
    parser.add_argument("--losses", type=int, default=8, help="how many nodes are lost (8)")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most, for losses")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if {"losses", "torchrun"} & {*options.only}:
        needs.frameworks(["torch"])
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "replay": lambda: node_replay.replayed(needs.traces_or_model()),
        "losses": lambda: survivors(environment("torch"), options.losses, options.seed, options.minutes),
        "torchrun": lambda: plain(environment("torch")),
    }
    result: dict[str, Any] = {"machine": MACHINE}
    for part in parts:
        if part in options.only:
            result |= measured[part]()
    write_page(options.docs, result)
    write(options.out, result)
    print(json.dumps({name: value for name, value in result.items() if not isinstance(value, list)}))
    return verdict(problems(result))


if __name__ == "__main__":
    sys.exit(main())
