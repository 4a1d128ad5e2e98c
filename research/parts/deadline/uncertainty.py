"""Jobs with a deadline in uncertain worlds: the grid of uncertainties, and the policies' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from research.parts import page
from research.parts.cells import Axes, Cell, changed
from research.parts.deadline.jobs import Task
from research.simulation.deadline.measure import DoubtSum, measure_uncertainty, starts_in
from research.simulation.deadline.policies import DEFAULT
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.uncertainty import UncertaintyModel

POLICIES = (DEFAULT, "uniform-progress-keep", "greedy")
RESTART_TIME_MINUTES = 20
TOGETHER = 4
COUNTS = ("jobs", "missed", "avoidable", "by_luck", "unsaid", "retracted")
AXES: Axes = {
    "restarts": {"½ to 2 × as expected": {"spread": 1.0}, "1.5 × as expected": {"longer": 1.5}},
    "on-demand": {
        "rejected at half of the Spot outages": {"refused_with_spot": 0.5},
        "rejected twice a day": {"refusals_a_day": 2.0},
    },
    "progress": {
        "0.7 to 1 of the plan, drifting": {"slowest": 0.7},
        "0.7 to 1 of the plan, in steps": {"slowest": 0.7, "progress": "steps"},
    },
    "spot price": {
        "0.7": {"prices": (0.7,)},
        "1.0": {"prices": (1.0,)},
        "0.3, 0.7 or 1.0": {"prices": (0.3, 0.7, 1.0)},
    },
    "interruptions": {"half unsaved, 30 min lost": {"saved": 0.5, "checkpoint": 1800.0}},
    "polls": {"every 120 s": {"tick": 120.0}},
    "earlier jobs": {"none": {"learned": False}},
}
_OF_THE_JOB = ("checkpoint", "tick")


@dataclass(frozen=True)
class Played:
    """The jobs of one policy in one cell and pool; ``plain``: a job's expected cost on On-Demand."""

    cell: Cell
    policy: str
    ratio: float
    plain: float
    sum: DoubtSum


def play(task: Task, cell: Cell) -> list[Played]:
    """Replay one task in one cell."""
    world = changed(AXES, cell)
    learned = world.pop("learned", True)
    of_job = {name: world.pop(name) for name in _OF_THE_JOB if name in world}
    pool = PoolRuns.of_trace(task.trace)
    jobs = task.jobs(pool, **of_job)
    if not jobs:
        return []
    starts = starts_in(pool, max(job.deadline for _, job in jobs), task.starts)
    policies = task.policies(POLICIES)
    sums = measure_uncertainty(
        pool, [job for _, job in jobs], policies, starts, UncertaintyModel(**world), learned=learned
    )
    return [
        Played(cell, name, ratio, (job.compute + job.restart_overhead) / 3600, sums[job, name])
        for ratio, job in jobs
        for name in policies
    ]


def grid(
    tasks: Sequence[Task], chosen: Sequence[Cell], run: Callable[..., Iterable[list[Played]]]
) -> dict[str, Any]:
    """Return the figures of these cells; ``run`` is ``map``, perhaps over processes."""
    work = [(task, cell) for cell in chosen for task in tasks]
    played = [outcome for result in run(play, *zip(*work, strict=True)) for outcome in result]
    rows = [_row(cell, name, played) for cell in chosen for name in POLICIES]
    ours = [row for row in rows if row["policy"] == DEFAULT]
    for row in ours:
        row["dominated_by"] = [o["policy"] for o in rows if o["axes"] == row["axes"] and dominates(o, row)]
    return {
        "cells": len(chosen),
        **{name: sum(row[name] for row in ours) for name in COUNTS},
        "dominated": sum(bool(row["dominated_by"]) for row in ours),
        "rows": rows,
    }


def dominates(rival: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Return whether another policy is cheaper by more than 0.5 % without more misses."""
    return bool(rival["cost"] < 0.995 * row["cost"] and rival["missed"] <= row["missed"])


def _row(cell: Cell, policy: str, played: Sequence[Played]) -> dict[str, Any]:
    these = [outcome for outcome in played if outcome.cell == cell and outcome.policy == policy]
    sums = [outcome.sum for outcome in these]
    total = {name: sum(getattr(s, name) for s in sums) for name in DoubtSum.__dataclass_fields__}
    warned = total["misses"] - total["unsaid"]
    return {
        "axes": dict(cell),
        "policy": policy,
        "jobs": total["jobs"],
        "cost": round(fmean(outcome.sum.cost / outcome.sum.jobs / outcome.plain for outcome in these), 4),
        "missed": total["misses"],
        **{name: total[name] for name in ("avoidable", "by_luck", "unsaid", "retracted")},
        "said_hours": round(total["said_hours"] / warned, 2) if warned else None,
        "said_hours_least": round(min(s.said_least for s in sums), 2) if warned else None,
    }


def _announced(row: Mapping[str, Any]) -> str:
    return f"{row['said_hours']:.1f}, {row['said_hours_least']:.1f}" if row["said_hours"] else "–"


def page_part(figures: Mapping[str, Any]) -> str:
    """Return the grid's part of the page."""
    costs = {(str(row["axes"]), row["policy"]): row["cost"] for row in figures["rows"]}
    rows = [
        {
            **row,
            "changed": "; ".join(f"{axis}: {value}" for axis, value in row["axes"].items()) or "nothing",
            "share": row["missed"] / row["jobs"],
            "announced": _announced(row),
            **{f"cost {name}": costs[str(row["axes"]), name] for name in POLICIES},
        }
        for row in figures["rows"]
        if row["policy"] == DEFAULT
    ]
    columns = {
        "changed": "{changed}",
        "missed": "{share:.1%}",
        "avoidable": "{avoidable}",
        "announced": "{announced}",
        **{f"{name} costs": f"{{cost {name}:.3f}}" for name in POLICIES},
    }
    return "\n\n".join(
        (
            "### Under uncertainty",
            f"{figures['cells']} worlds: as expected, each assumption changed alone, every pair; "
            f"{figures['jobs']:,} replays of `{DEFAULT}`, restarts expected to take {RESTART_TIME_MINUTES} "
            "min, Spot at 0.3 unless varied. Except with *earlier jobs: none*, every policy reserves for "
            "what earlier jobs met in the pool, in a similar world with other draws. *Missed*: of all "
            "jobs. *Avoidable*: of these, what a clairvoyant could have met, with restarts of middle "
            "length. *Announced*: hours before the deadline at which the job was declared lost, mean and "
            "minimum. Costs ÷ On-Demand alone, as expected.",
            page.table_of(columns, rows),
            f"Total: {figures['missed']:,} missed, of them {figures['avoidable']} avoidable, "
            f"{figures['by_luck']} only by knowing in advance when a restart is short, {figures['unsaid']} "
            f"not announced; {figures['retracted']} announced and then met. In {figures['dominated']} "
            "worlds another policy costs more than 0.5 % less and misses no more.",
        )
    )
