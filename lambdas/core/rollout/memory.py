"""State of a rollout, stored as a part of the health checker's memory of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from contracts.group.release import WorkerRelease
from contracts.stored import stored
from lambdas.core.rollout.comparison import Comparison


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class HostProgress:
    """A host with the release that a rollout last gave it.

    Attributes:
        version: the release's version.
        sent_at: when a restart with it was requested (epoch seconds); 0 if the host booted with it.
        first_starts: the total of its workers' starts when it was first observed with the candidate.
        is_verified: the release has proved itself on the host.
    """

    version: str = ""
    sent_at: float = 0.0
    first_starts: int | None = None
    is_verified: bool = False


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of a rollout.

    Attributes:
        stable: the verified release.
        candidate: the release under rollout; None without a rollout.
        last_step_at: when the last step was made (epoch seconds).
        hosts: the hosts that a rollout has restarted, and those that run its candidate.
        abandoned: the version of the last candidate that hosts are moved away from.
        rejection_reason: why it was rolled back; empty if the stack file has named another one instead.
        comparison: the candidate in comparison with the release before it.
        written_hash: hash of the registry row as it was last written.
    """

    stable: WorkerRelease | None = None
    candidate: WorkerRelease | None = None
    last_step_at: float = 0.0
    hosts: Mapping[str, HostProgress] = field(default_factory=dict)
    abandoned: str = ""
    rejection_reason: str = ""
    comparison: Comparison = field(default_factory=Comparison)
    written_hash: str = ""

    @property
    def rejected(self) -> str:
        """The version that was rolled back and is not tried again; empty if there is none."""
        return self.abandoned if self.rejection_reason else ""

    def without_hosts(self, hosts: Iterable[str]) -> Rollout:
        """Return the state without hosts whose restart failed to be requested: the next pass tries again."""
        return replace(self, hosts={host: self.hosts[host] for host in self.hosts.keys() - set(hosts)})
