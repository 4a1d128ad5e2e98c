"""Item of a job in the job table: its state, lease and volume.

Each writer updates its own attributes (``userdata.agent.aws.jobs``, ``userdata.agent.lease.store``,
``gpu_spot.jobs.steering``); the whole item is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from contracts import codec
from contracts.agent.nodes import JobNodes
from contracts.stored import Stored, stored

JobState: TypeAlias = Literal["running", "done", "failed"]


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Retries:
    """Number of manual retries of a failed run of ``revision``."""

    revision: str = ""
    count: int = 0


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HostFaults:
    """Number of consecutive host faults, and the time of the newest checkpoint at the last one."""

    revision: str = ""
    count: int = 0
    checkpoint: float = 0.0


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class JobItem:
    """A job's item; an empty value or 0 means not set. Times are epoch seconds.

    ``state`` (`JobState`) and ``reason``, set at ``changed_at``, apply to ``revision``; another revision is a
    new run. ``holder`` has the lease until ``lease_expires_at``; ``token`` is the fencing token of the last
    lease, ``writer`` the token under which ``volume`` was last mounted. ``experiments`` share the group. A
    job of several nodes has ``nodes``, and each node an item with its lease.
    """

    state: str = ""
    reason: str = ""
    revision: str = ""
    changed_at: Annotated[float, Stored("changed")] = 0.0
    holder: str = ""
    lease_expires_at: Annotated[float, Stored("leaseUntil")] = 0.0
    token: int = 0
    volume: str = ""
    writer: int = 0
    retries: Retries = field(default_factory=Retries)
    host_faults: HostFaults = field(default_factory=HostFaults)
    experiments: tuple[str, ...] = ()
    nodes: JobNodes | None = None

    def node_names(self, job: str) -> list[str]:
        """Return the names of the nodes' items; empty for a job on one instance."""
        return self.nodes.names(job) if self.nodes else []

    def state_of(self, revision: str) -> str:
        """Return the state of a run; empty if the item is about another run."""
        return self.state if self.revision == revision else ""

    def retries_of(self, revision: str) -> int:
        """Return the number of manual retries of a run."""
        return self.retries.count if self.retries.revision == revision else 0


def parse(item: Mapping[str, Any]) -> JobItem:
    """Parse a job's item; an empty item is that of a new job.

    Raises:
        ContractError: An attribute is invalid.
    """
    return codec.parse_item(JobItem, item, "malformed item in the job table")
