"""A job's history in the job table: an item for each attempt, the time for which one instance had the job.

Its key is ``<job>#<nn>``, the lease's token modulo 100: the last hundred stay, nothing expires, and who knows
the token finds all of them without a search. Only the attempt's own instance writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from contracts import codec
from contracts.agent.names import JOB_KEY
from contracts.stored import stored

ATTEMPTS_RETAINED: Final = 100

AttemptOutcome: TypeAlias = Literal["done", "failed", "host fault", "notice", "hand-over", "silent"]
"""How an attempt ended by its own words. ``notice``: AWS took the instance; ``hand-over``: another cause told
it to end; ``silent``: it has said nothing of an end, and lives or is lost."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True)
class JobAttempt:
    """One instance's part of a run, as it tells itself. Times are epoch seconds, 0: not (yet).

    The instance was ``launched``, ``began`` to run the job when its volume was there, ``started`` the command
    from a checkpoint of the time ``resumed`` (0: from none), was ``told`` to give it up (``cause``: the
    notice's kind), the command ``stopped``, and the run ``ended`` (``end``: how). At ``seen`` it was alive,
    and ``checkpoint`` was the time of the newest. The command was started ``starts`` times, the last time at
    ``restarted``; what failed before had done ``lost`` seconds of work in vain. ``market`` is the metadata
    service's word, such as ``spot``.
    """

    token: int
    revision: str
    instance: str
    instance_type: str
    zone: str
    market: str
    side: str
    launched: float
    began: float
    seen: float
    started: float = 0.0
    restarted: float = 0.0
    starts: int = 0
    resumed: float = 0.0
    checkpoint: float = 0.0
    lost: float = 0.0
    told: float = 0.0
    cause: str = ""
    stopped: float = 0.0
    ended: float = 0.0
    end: str = ""

    @property
    def outcome(self) -> AttemptOutcome:
        """How it ended, by its own words."""
        if self.end in ("done", "failed"):
            return "done" if self.end == "done" else "failed"
        if self.end == "host":
            return "host fault"
        if self.told and self.cause == "spot":
            return "notice"
        return "hand-over" if self.ended or self.told else "silent"


def key(job: str, token: int) -> dict[str, Any]:
    """Return the key of an attempt's item."""
    return {JOB_KEY: codec.attribute(f"{job}#{token % ATTEMPTS_RETAINED:02d}")}


def dump(job: str, attempt: JobAttempt) -> dict[str, Any]:
    """Return an attempt's whole item."""
    return {**key(job, attempt.token), **codec.dump_item(attempt)}


def parse(item: Mapping[str, Any]) -> JobAttempt:
    """Return the attempt of an item; raise `ContractError` for one that no instance of ours writes."""
    return codec.parse_item(JobAttempt, item, "malformed attempt in the job table")
