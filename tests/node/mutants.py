"""The volume's protocol with one rule broken at a time: what the plays must find, or they prove nothing.

Each mutant is the shipped code but for one line. ``rule`` is its number in
``userdata/agent/storage/volume/__init__.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from userdata.agent.lease.store import DynamoLease, Lease
from userdata.agent.storage.volume import execute, model
from userdata.agent.storage.volume import plan as planner
from userdata.agent.storage.volume.model import EbsVolume, Observed, Snapshot, Step


@dataclass(frozen=True)
class Mutant:
    rule: int
    name: str
    apply: Callable[[], contextlib.AbstractContextManager[Any]]


def _commit_by_anybody(lease: DynamoLease, token: int, volume: str) -> None:
    values = {":until": lease._expires_at(), ":token": {"N": str(token)}, ":volume": {"S": volume}}
    lease._update(
        "SET leaseUntil = :until, writer = :token, volume = :volume", "attribute_exists(#token)", values
    )


def _candidate_of_anybody(
    observed: Observed, volumes: tuple[EbsVolume, ...], source: str | None
) -> EbsVolume | None:
    made = tuple(
        replace(v, token=observed.lease.token) if v.tag_state == model.PREPARING else v for v in volumes
    )
    return _candidate(observed, made, source)


def _counts_whoever_wrote_since(snapshot: Snapshot, home: EbsVolume, lease: Lease) -> bool:
    return _counts(snapshot, home, replace(lease, writer=-1))


def _counts_the_writers_own(snapshot: Snapshot, home: EbsVolume, lease: Lease) -> bool:
    return _counts(snapshot, home, replace(lease, writer=lease.writer - 1))


def _claim_nothing(lease: DynamoLease, token: int) -> None:
    lease.renew(token)


def _delete_before_the_commit(observed: Observed, candidate: EbsVolume, *, blank: bool) -> Step:
    step = _mount_candidate(observed, candidate, blank=blank)
    if isinstance(step, model.Commit) and any(v.id == candidate.source for v in observed.volumes):
        return model.Discard("volume", str(candidate.source))
    return step


def _delete_before_the_mount(observed: Observed) -> Step:
    step = _plan(observed)
    home = next((v for v in observed.volumes if v.id == observed.lease.volume), None)
    if isinstance(step, model.Attach) and home is not None and step.volume != home.id:
        return model.Discard("volume", home.id)
    return step


_candidate, _counts = planner._candidate, planner._is_up_to_date
_mount_candidate, _plan = planner._mount_candidate, planner.plan


def _instead(owner: Any, name: str, made: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: mock.patch.object(owner, name, made)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(1, "the home moves by anybody's write", _instead(DynamoLease, "commit", _commit_by_anybody)),
    Mutant(1, "another lease's volume becomes home", _instead(planner, "_candidate", _candidate_of_anybody)),
    Mutant(
        2,
        "a snapshot counts whoever wrote since",
        _instead(planner, "_is_up_to_date", _counts_whoever_wrote_since),
    ),
    Mutant(2, "a snapshot ahead counts", _instead(planner, "_is_up_to_date", _counts_the_writers_own)),
    Mutant(2, "the writer is not claimed", _instead(DynamoLease, "claim", _claim_nothing)),
    Mutant(
        3,
        "the old home goes before the commit",
        _instead(planner, "_mount_candidate", _delete_before_the_commit),
    ),
    Mutant(3, "the old home goes before the mount", _instead(execute, "plan", _delete_before_the_mount)),
)


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    with mutant.apply():
        yield
