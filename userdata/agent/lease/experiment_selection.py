"""Choice of the experiment that an instance runs next: a pure function of the leases of all experiments.

There is no scheduler. The instance acquires the chosen experiment's lease by one conditional write; an
instance that loses the race chooses again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ExperimentLease:
    """The state of an experiment and its lease, which ``holder`` has until ``expires_at`` (epoch seconds).

    ``holder``: empty if there is none. ``has_started``: an instance has run it; ``is_finished``: it is done
    or has failed permanently. ``is_ready``: it may be started now.
    """

    has_started: bool = False
    is_finished: bool = False
    has_failed: bool = False
    holder: str = ""
    expires_at: float = 0.0
    is_ready: bool = True

    def is_available(self, instance: str, now: float) -> bool:
        """Return whether ``instance`` may acquire it: ready, and the condition of the lease's write."""
        is_free = self.holder in ("", instance) or self.expires_at < int(now)
        return self.is_ready and not self.is_finished and is_free


@dataclass(frozen=True, slots=True)
class TakeExperiment:
    """Run the experiment of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class WaitForLease:
    """Wait: other instances hold the leases of all ``unfinished`` experiments that are ready."""

    unfinished: int


@dataclass(frozen=True, slots=True)
class AllFinished:
    """All experiments are finished; ``failed`` are the names of those that failed, sorted."""

    failed: tuple[str, ...]


Selection: TypeAlias = TakeExperiment | WaitForLease | AllFinished


def choose_experiment(leases: Mapping[str, ExperimentLease], instance: str, now: float) -> Selection:
    """Return what ``instance`` does next at ``now`` (epoch seconds).

    The experiment whose lease it holds comes first: a restarted agent continues it. Then started experiments,
    which have checkpoints; then new ones. Ties are broken by a hash of instance and name, so that few
    instances compete for the same experiment.
    """
    unfinished = {name: lease for name, lease in leases.items() if not lease.is_finished}
    if not unfinished:
        return AllFinished(tuple(sorted(name for name, lease in leases.items() if lease.has_failed)))
    available = [name for name, lease in unfinished.items() if lease.is_available(instance, now)]
    if not available:
        return WaitForLease(len(unfinished))

    def rank(name: str) -> tuple[bool, bool, bytes]:
        lease = unfinished[name]
        return (
            lease.holder != instance,
            not lease.has_started,
            hashlib.sha256(f"{instance} {name}".encode()).digest(),
        )

    return TakeExperiment(min(available, key=rank))
