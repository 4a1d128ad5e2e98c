"""Items of a job's attempts in the job table; an attempt is the part of a run on one instance.

The key is ``<job>#<nn>`` with the lease's fencing token modulo 100: the last hundred attempts are retained
and found by the token without a query. Only the instance of the attempt writes its item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from contracts import codec
from contracts.agent.names import JOB_KEY
from contracts.stored import Stored, stored

ATTEMPTS_RETAINED: Final = 100
WRITE_INTERVAL_SECONDS: Final = 60.0
"""An instance writes its attempt at least as often: if it vanishes, the time is known to a minute."""

AttemptOutcome: TypeAlias = Literal["done", "failed", "host fault", "notice", "hand-over", "silent"]
"""Outcome of an attempt as recorded by its instance. ``notice``: Spot interruption; ``hand-over``: stopped
for another reason; ``silent``: no end recorded, it runs or its instance was lost."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True)
class JobAttempt:
    """One instance's part of a run. Times are epoch seconds; 0: not (yet) happened.

    Attributes:
        purchase_option: ``instance-life-cycle`` of the instance metadata, such as ``spot``.
        began: Start of the attempt, once the volume was attached.
        last_seen_at: Last update by the instance.
        started: First start of the command.
        restarted: Last start of the command, of ``starts`` in total.
        resumed: Time of the checkpoint that the command resumed from; 0: none.
        checkpoint: Time of the newest checkpoint.
        lost: Seconds of work lost by failed starts.
        notice_at: Time of the notice to stop, whose kind is ``cause``.
        ended: End of the attempt, whose result is ``end``.
        booted: Start of the agent's work on the job: it asks for the lease, then for the volume.
        first_step: Completed steps at the first report of the command; None: it reported none.
        step: Completed steps at its last report; None: it reported none.
        repeated: Steps that restarts of the command here did again.
        saving: Seconds for which saves paused the command, as it reported; None: a start reported none.
        exporting: When the command reported its last step or its end; it exports its results since.
    """

    token: int
    revision: str
    instance: str
    instance_type: str
    zone: str
    purchase_option: Annotated[str, Stored("market")]
    group_role: Annotated[str, Stored("side")]
    launched: float
    began: float
    last_seen_at: Annotated[float, Stored("seen")]
    started: float = 0.0
    restarted: float = 0.0
    starts: int = 0
    resumed: float = 0.0
    checkpoint: float = 0.0
    lost: float = 0.0
    notice_at: Annotated[float, Stored("told")] = 0.0
    cause: str = ""
    stopped: float = 0.0
    ended: float = 0.0
    end: str = ""
    booted: float = 0.0
    first_step: int | None = None
    step: int | None = None
    repeated: int = 0
    saving: float | None = None
    exporting: float = 0.0

    @property
    def outcome(self) -> AttemptOutcome:
        """The outcome as recorded by the instance."""
        if self.end in ("done", "failed"):
            return "done" if self.end == "done" else "failed"
        if self.end == "host":
            return "host fault"
        if self.notice_at and self.cause == "spot":
            return "notice"
        return "hand-over" if self.ended or self.notice_at else "silent"

    def lost_seconds(self, resumed: float) -> float:
        """Return the seconds of work lost if the job resumes from a checkpoint of the time ``resumed``.

        Without a recorded end of the command, count until the last write: up to a minute too little.
        """
        if not self.starts:
            return 0.0
        end = self.stopped or self.last_seen_at
        return max(0.0, end - max(resumed, self.restarted))


def sum_of_saving(first: float | None, second: float | None) -> float | None:
    """Return the sum of two records of saving; None if one is unknown."""
    return None if first is None or second is None else first + second


def key(job: str, token: int) -> dict[str, Any]:
    """Return the key of an attempt's item."""
    return {JOB_KEY: codec.attribute(f"{job}#{token % ATTEMPTS_RETAINED:02d}")}


def dump(job: str, attempt: JobAttempt) -> dict[str, Any]:
    """Return an attempt's whole item."""
    return {**key(job, attempt.token), **codec.dump_item(attempt)}


def parse(item: Mapping[str, Any]) -> JobAttempt:
    """Parse an attempt's item; raise `ContractError` if it is invalid."""
    return codec.parse_item(JobAttempt, item, "malformed attempt in the job table")
