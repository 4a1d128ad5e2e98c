"""A study of 200 trials on 8 played machines, without losses and with each machine lost often.

Figures: ``study_equal``, the share of plays with losses whose history and best trial equal those without;
``asha_share``, the machine-hours with a trial under ASHA, as a share of all trials trained to their end;
``paid_share``, the same with idle machines. The benchmark: ``tests/node/study_machines.py`` (30 steps of a
minute, a loss curve of three parameters, rungs at 1, 3, 9 and 27 steps).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.parts import page, run
from tests.node.study_machines import STEP_SECONDS, STEPS, Losses, StudyWorld, loss, play, study
from tests.real.environments import NotInstalledError, environment
from tests.real.study_sampler import OptunaSampler

TRIALS: Final = 200
MACHINES: Final = 8
SEEDS: Final = range(3)
OFTEN: Final = Losses(silent=0.004, announced=0.006, pause=0.002)
LEAST_LOSSES: Final = 4
"""Losses of each machine, on average, below which a play is not lossy."""


def best(world: StudyWorld) -> tuple[float, int]:
    """Return value and number of the best complete trial."""
    return min(
        (outcome.value, number)
        for number, outcome in enumerate(world.outcomes())
        if outcome.state == "complete" and outcome.value is not None
    )


def compare(sampler: Any, command: Callable[..., str] | None, folder: Path) -> dict[str, Any]:
    """Play a study without losses and with them; return its figures."""
    studied = study(TRIALS, MACHINES, sampler=sampler)
    calm = play(studied, MACHINES, folder / "calm", run=command)
    lossy = [
        play(studied, MACHINES, folder / f"lossy-{seed}", OFTEN, seed=seed, run=command) for seed in SEEDS
    ]
    grid_seconds = TRIALS * STEPS * STEP_SECONDS
    paid = [MACHINES * (world.clock.monotonic() - 1000.0) for world in (calm, *lossy)]
    trained = sorted(loss(parameters, STEPS) for parameters in calm.parameters())
    return {
        "sampler": sampler,
        "equal": sum(
            world.outcomes() == calm.outcomes()
            and world.parameters() == calm.parameters()
            and best(world) == best(calm)
            for world in lossy
        )
        / len(lossy),
        "losses_per_machine": round(sum(world.lost for world in lossy) / len(lossy) / MACHINES, 1),
        "asha_share": round(calm.busy / grid_seconds, 3),
        "asha_share_with_losses": round(max(world.busy for world in lossy) / grid_seconds, 3),
        "paid_share": round(paid[0] / grid_seconds, 3),
        "paid_share_with_losses": round(max(paid[1:]) / grid_seconds, 3),
        "best": round(best(calm)[0], 4),
        "rank_of_best": trained.index(best(calm)[0]) + 1,
    }


def section(rows: list[dict[str, Any]]) -> str:
    """Return the benchmark's part of the page."""
    columns = (
        "sampler",
        "equal histories",
        "losses of a machine",
        "hours",
        "with losses",
        "paid",
        "with losses",
    )
    keys = ("equal", "losses_per_machine", "asha_share", "asha_share_with_losses", "paid_share")
    cells = [
        [str(row["sampler"]), *(f"{row[key]:.3g}" for key in (*keys, "paid_share_with_losses"))]
        for row in rows
    ]
    text = (
        f"`make bench-study`: {TRIALS} trials of {STEPS} steps of a minute on {MACHINES} played machines, "
        "with the shipped lease, loop and comparison, pruned by successive halving at 1, 3, 9 and 27 steps; "
        f"{len(SEEDS)} plays each in which machines are lost, more than half of them with a notice, and "
        "others stand still for longer than their lease. *Equal*: plays with the same history and best trial "
        "as without losses. *Hours*: machine-hours with a trial, of those of all trials trained to their "
        "end; *paid*: with idle machines and boots."
    )
    return f"## Studies\n\n{text}\n\n{page.table(columns, cells)}\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if histories differ, or ASHA takes over 40 % of the grid's hours."""
    options = run.parser_of(__doc__, "study", docs=True).parse_args(arguments)
    samplers: dict[str, OptunaSampler | None] = {"random": None}
    try:
        samplers["tpe"] = OptunaSampler(environment("study"))
    except NotInstalledError as error:
        print(f"Optuna is left out: {error}", flush=True)
    rows = []
    for name, helper in samplers.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(name, None if helper is None else helper.run, Path(folder)))
        print(rows[-1], flush=True)
        if helper is not None:
            helper.close()
    figures = {
        "study_equal": min(row["equal"] for row in rows),
        "asha_share": max(row["asha_share"] for row in rows),
    }
    run.write(options.out, {**figures, "rows": rows, "machine": run.MACHINE})
    if len(rows) == len(samplers) > 1:
        page.replace_part(options.docs / "performance.md", "study", section(rows))
    problems = [] if figures["study_equal"] == 1 else [f"study_equal {figures['study_equal']}, needed: 1"]
    if figures["asha_share"] > 0.4:
        problems.append(f"asha_share {figures['asha_share']}, needed: at most 0.4")
    if any(row["losses_per_machine"] < LEAST_LOSSES for row in rows):
        problems.append(f"fewer than {LEAST_LOSSES} losses of a machine")
    return run.verdict(problems)


if __name__ == "__main__":
    sys.exit(main())
