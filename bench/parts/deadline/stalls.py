"""Jobs with a deadline whose progress stalls or slows, in a rehearsal with the deployed controller.

Their pool never loses Spot capacity: On-Demand is launched only for the stall. A hindrance affects the job on
every instance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.parts import page
from bench.parts.deadline.stack import Scenario, StackJob
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.model import GroupRole
from market.supply.trace import PoolTrace
from rehearsal.machines.pace import Slowdown, Speeds

STABLE: Final = PoolTrace("always there", 300.0, (1,) * 300)
HOURS, DEADLINE_HOURS = 2.0, 6.0
FULL: Final = {
    "stands still for 2.5 h": (Slowdown(1.0, 3.5),),
    "a fifth of its speed, for good": (Slowdown(0.7, math.inf, 0.2),),
    "stands still for good": (Slowdown(0.7, math.inf),),
}


def scenarios() -> list[Scenario]:
    """Return a job for each kind of stall."""
    return [Scenario(STABLE, HOURS, DEADLINE_HOURS, hindrances) for hindrances in FULL.values()]


def said_lost(job: StackJob) -> list[float]:
    """Return the time of the alarm that the deadline cannot be met, in hours after the start."""
    return [at for at, orders, _ in job.decisions if f"alarm: {by_deadline.DEADLINE_LOST}" in orders]


def bought(job: StackJob) -> float | None:
    """Return the time of the first On-Demand request, None without one."""
    action = f"{GroupRole.FALLBACK}: desired capacity 1"
    asks = (at for at, orders, _ in job.decisions if any(action in order for order in orders))
    return next(asks, None)


def hopeless(scenario: Scenario) -> float:
    """Return when the deadline became impossible even at full speed without losses; infinity: never.

    In hours after the start, for a clairvoyant that knows the work possible between two times. A policy knows
    only the job's reported remaining work, so it may detect this much later.
    """
    pace = Speeds(scenario.hindrances)
    minutes = (minute / 60 for minute in range(round(scenario.deadline_hours * 60)))
    return next((at for at in minutes if _is_hopeless(scenario, at, pace.work(0, at))), math.inf)


def _is_hopeless(scenario: Scenario, now: float, done: float) -> bool:
    return scenario.deadline_hours - now < scenario.hours - done


def figures(jobs: Sequence[StackJob]) -> dict[str, Any]:
    """Return their part of ``deadline.json``, in hours after the start."""
    return {
        "stack_stalls": {
            name: {
                "deadline": job.deadline_hours,
                "stalls": FULL[name][0].begin,
                "on_demand": bought(job),
                "done": job.done,
                "hopeless": None if math.isinf(at := hopeless(scenario)) else round(at, 2),
                "said_lost": said_lost(job),
            }
            for name, scenario, job in zip(FULL, scenarios(), jobs, strict=True)
        }
    }


def page_part(figures: Mapping[str, Any]) -> str:
    """Return this part of ``performance.md``."""

    def hours(at: float | None) -> str:
        return "" if at is None else f"{at:.2f}"

    rows = [
        [
            name,
            *(hours(row[key]) for key in ("deadline", "stalls", "on_demand", "done", "hopeless")),
            ", ".join(map(hours, row["said_lost"])),
        ]
        for name, row in figures["stack_stalls"].items()
    ]
    return "\n\n".join(
        (
            f"{HOURS:g} h of compute in a pool that keeps its Spot capacity; the work itself stalls. Hours "
            "after "
            "the start; *hopeless*: from then on full speed cannot meet the deadline.",
            page.table(
                ["the job", "due", "stalls", "on-demand asked for", "done", "hopeless", "declared lost"], rows
            ),
        )
    )
