"""A job's item in the job table: its state, its lease and its volume; instances write it, people read it.

Each writer updates its own attributes (``userdata.agent.aws.jobs``, ``userdata.agent.lease.store``,
``gpu_spot.jobs.steering``): the whole is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from contracts import codec
from contracts.stored import stored

JobState: TypeAlias = Literal["running", "done", "failed"]


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Retries:
    """How often people have let a failed run of ``revision`` begin again."""

    revision: str = ""
    count: int = 0


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HostFaults:
    """How many hosts in a row were to blame; ``checkpoint`` is the newest one's time at the last of them."""

    revision: str = ""
    count: int = 0
    checkpoint: float = 0.0


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class JobItem:
    """What the item says; empty or 0: it says nothing of that. Times are epoch seconds.

    ``state`` (`JobState`) and ``reason``, of the time ``changed``, count for ``revision``: another one is a
    new run. ``holder`` has the lease until ``lease_until``; ``token`` is that of the last lease, ``writer``
    the one under which ``volume`` was last mounted. ``experiments`` are those that share the group.
    """

    state: str = ""
    reason: str = ""
    revision: str = ""
    changed: float = 0.0
    holder: str = ""
    lease_until: float = 0.0
    token: int = 0
    volume: str = ""
    writer: int = 0
    retries: Retries = field(default_factory=Retries)
    host_faults: HostFaults = field(default_factory=HostFaults)
    experiments: tuple[str, ...] = ()

    def state_of(self, revision: str) -> str:
        """Return the state of a run, empty where the item is about another."""
        return self.state if self.revision == revision else ""

    def retries_of(self, revision: str) -> int:
        """Return how often people have let a run begin again."""
        return self.retries.count if self.retries.revision == revision else 0


def parse(item: Mapping[str, Any]) -> JobItem:
    """Return what an item of the job table says; an empty one is a new job's.

    Raises:
        ContractError: an attribute that no writer of ours leaves.
    """
    return codec.parse_item(JobItem, item, "malformed item in the job table")
