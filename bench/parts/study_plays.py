"""A study of 200 trials on 8 played machines, without losses and with each machine lost often.

Figures: ``study_equal``, the share of plays with losses whose history and best trial equal those without;
``asha_share``, the machine-hours with a trial under ASHA, as a share of all trials trained to their end;
``paid_share``, the same with idle machines. The benchmark: ``tests/node/study_machines.py`` (30 steps of a
minute, a loss curve of three parameters, rungs at 1, 3, 9 and 27 steps).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.parts import page
from tests.node.study_machines import STEP_SECONDS, STEPS, Losses, StudyWorld, loss, play, study
from tests.real.environments import environment
from tests.real.study_sampler import OptunaSampler

TRIALS: Final = 200
MACHINES: Final = 8
SEEDS: Final = range(3)
OFTEN: Final = Losses(silent=0.004, announced=0.006, pause=0.002)
LEAST_LOSSES: Final = 4
"""Losses of each machine, on average, below which a play is not lossy."""
MAX_SHARE: Final = 0.4
"""Of the grid's hours, that ASHA may take."""


def best(world: StudyWorld) -> tuple[float, int]:
    """Return value and number of the best complete trial."""
    return min(
        (outcome.value, number)
        for number, outcome in enumerate(world.outcomes())
        if outcome.state == "complete" and outcome.value is not None
    )


def compare(command: Callable[..., str] | None) -> dict[str, Any]:
    """Play a study without losses and with them; return its figures. ``command`` asks Optuna."""
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as folder:
        return _compare(command, Path(folder))


def _compare(command: Callable[..., str] | None, folder: Path) -> dict[str, Any]:
    studied = study(TRIALS, MACHINES, sampler="random" if command is None else "tpe")
    calm = play(studied, MACHINES, folder / "calm", run=command)
    lossy = [
        play(studied, MACHINES, folder / f"lossy-{seed}", OFTEN, seed=seed, run=command) for seed in SEEDS
    ]
    grid_seconds = TRIALS * STEPS * STEP_SECONDS
    paid = [MACHINES * (world.clock.monotonic() - 1000.0) for world in (calm, *lossy)]
    trained = sorted(loss(parameters, STEPS) for parameters in calm.parameters())
    return {
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
        f"`make bench-nodes` (`--only study`): {TRIALS} trials of {STEPS} steps of a minute on {MACHINES} "
        "played machines, with the shipped lease, loop and comparison, pruned by successive halving at 1, 3, "
        f"9 and 27 steps; {len(SEEDS)} plays each in which machines are lost, more than half of them with a "
        "notice, and others stand still for longer than their lease. *Equal*: plays with the same history "
        "and best trial as without losses. *Hours*: machine-hours with a trial, of those of all trials "
        "trained to their "
        "end; *paid*: with idle machines and boots."
    )
    return f"## Studies\n\n{text}\n\n{page.table(columns, cells)}\n"


def measure() -> dict[str, Any]:
    """Play studies with our random sampler and with Optuna's; return the figures and a row for each."""
    helper = OptunaSampler(environment("study"))
    try:
        rows = [
            {"sampler": name, **compare(command)} for name, command in (("random", None), ("tpe", helper.run))
        ]
    finally:
        helper.close()
    return {
        "study_equal": min(row["equal"] for row in rows),
        "asha_share": max(row["asha_share"] for row in rows),
        "studies": rows,
    }


def problems(result: dict[str, Any]) -> list[str]:
    """Return what does not hold."""
    violations = []
    for row in result["studies"]:
        if row["equal"] < 1:
            violations.append(f"study_equal is {row['equal']} with {row['sampler']}, needed: 1")
        if row["asha_share"] > MAX_SHARE:
            violations.append(
                f"asha_share is {row['asha_share']} with {row['sampler']}, allowed: {MAX_SHARE}"
            )
        if row["losses_per_machine"] < LEAST_LOSSES:
            violations.append(f"losses_per_machine is {row['losses_per_machine']}, needed: {LEAST_LOSSES}")
    return violations
