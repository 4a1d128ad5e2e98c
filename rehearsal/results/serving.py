"""Counts of services whose real workers ran while a simulated market interrupted instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SPOT: Final = "AWS Spot"
ON_DEMAND: Final = "AWS On-Demand"
OFFICE: Final = "office"
API: Final = "external API"
"""Where a reply's text or a run comes from."""
ORIGINS: Final = (SPOT, ON_DEMAND, OFFICE, API)


@dataclass(frozen=True, slots=True)
class Sample:
    """Number of unanswered requests, and of ready workers by service, at the start of ``tick``."""

    tick: int
    waiting: int
    workers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReplyWaits:
    """ReplyWaits from request to reply, in real seconds."""

    median: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class ServedGroup:
    """A service of the chain: its runs by origin, its interruptions and its cost.

    ``unmarked_duplicates``, ``run_again`` and ``came_back`` are counted by the run recorder: requests with
    more than one run that is not marked as repeat; runs beyond the first; requests that another worker had
    received before. ``killed`` workers got no notice, ``overdue`` ones had not ended at the deadline of their
    notice; ``drained`` ones ended in time. ``paid`` and ``all_on_demand`` are in On-Demand instance-hours:
    what the instances cost, and what the target less the office's workers costs without Spot.
    """

    name: str
    command: tuple[str, ...]
    target: int
    runs: Mapping[str, int]
    unmarked_duplicates: int
    run_again: int
    came_back: int
    drained: int
    overdue: int
    killed: int
    interruptions: int
    unannounced: int
    spot_starts: int
    on_demand_starts: int
    paid: float
    all_on_demand: float


@dataclass(frozen=True, slots=True)
class Served:
    """Counts of the requests of a real client, which the first service of a chain answers.

    ``pace`` is the number of simulated seconds per real second. ``wrong`` replies have another text than
    expected. ``sources`` are the replies by origin: of the worker that replied, or the external API;
    ``failed_calls`` and ``withheld_calls`` are the API's calls that failed or would have been over its limit.
    """

    pace: float
    requests: int
    answered: int
    lost: int
    wrong: int
    sources: Mapping[str, int]
    failed_calls: int
    withheld_calls: int
    waits: ReplyWaits
    groups: Sequence[ServedGroup]
    samples: Sequence[Sample]

    @property
    def is_whole(self) -> bool:
        """Whether every request was answered with its text and no repeat was unmarked."""
        unmarked = sum(group.unmarked_duplicates for group in self.groups)
        return self.answered == self.requests and not self.wrong and not unmarked

    @property
    def cost(self) -> float:
        """Cost of all instances as a fraction of their On-Demand price; without office and external API."""
        baseline = sum(group.all_on_demand for group in self.groups)
        return sum(group.paid for group in self.groups) / baseline if baseline else 0.0


def to_json(served: Served) -> dict[str, Any]:
    """Return the counts as JSON values."""
    waits, groups = served.waits, served.groups
    return {
        "pace": served.pace,
        "requests": served.requests,
        "answered": served.answered,
        "lost": served.lost,
        "wrong": served.wrong,
        "answered_by": {origin: served.sources.get(origin, 0) for origin in ORIGINS},
        "failed_api_calls": served.failed_calls,
        "withheld_api_calls": served.withheld_calls,
        "wait_seconds": {
            "p50": round(waits.median, 3),
            "p95": round(waits.p95, 3),
            "p99": round(waits.p99, 3),
            "longest": round(waits.longest, 3),
        },
        "unmarked_duplicates": sum(group.unmarked_duplicates for group in groups),
        "run_again": sum(group.run_again for group in groups),
        "came_back": sum(group.came_back for group in groups),
        "drained": sum(group.drained for group in groups),
        "overdue": sum(group.overdue for group in groups),
        "killed": sum(group.killed for group in groups),
        "interruptions": sum(group.interruptions for group in groups),
        "cost_vs_on_demand": served.cost,
        "services": [_group(group) for group in groups],
        "over_time": [
            [sample.tick, sum(sample.workers.values()), sample.waiting] for sample in served.samples
        ],
    }


def _group(group: ServedGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "command": list(group.command),
        "target": group.target,
        "runs_by": {origin: group.runs.get(origin, 0) for origin in (SPOT, ON_DEMAND, OFFICE)},
        "interruptions": group.interruptions,
        "unannounced": group.unannounced,
        "spot_starts": group.spot_starts,
        "on_demand_starts": group.on_demand_starts,
        "drained": group.drained,
        "overdue": group.overdue,
        "killed": group.killed,
        "run_again": group.run_again,
        "came_back": group.came_back,
        "cost_vs_on_demand": group.paid / group.all_on_demand if group.all_on_demand else 0.0,
    }
