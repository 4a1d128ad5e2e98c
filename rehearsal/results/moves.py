"""The moves of a training job and its data volume between instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Contents:
    """Content of a volume: number of files, and SHA-256 over their names and bytes."""

    files: int
    digest: str


Cause = Literal["notice", "loss", "hand-over"]
"""Cause of an instance's end: interruption with notice, without, or hand-over to another instance."""

PARTS: Final[Mapping[str, str]] = {
    "release": "from the notice, loss or hand-over until the volume is saved and free",
    "wait": "for an instance, its boot and the lease",
    "snapshot": "until the snapshot is complete; none in the same zone",
    "attach": "create the volume in the new zone, attach and mount it",
    "start": "check out, start, and load until the first step",
}
"""The parts of a move in order, with descriptions."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of training to the next instance. All times are epoch seconds.

    The instance is ``lost`` (with a notice: at the notice) and the volume ``freed``. The transfer, by
    snapshot or attachment, starts at ``transfer_started``; the data is ``copied`` (at once in the same zone)
    and ``mounted``; training is ``running`` again at its first step, ``step``. ``before`` and ``after`` are
    the contents at the last unmount and the next mount.
    """

    cause: Cause
    from_zone: str
    to_zone: str
    from_volume: str
    to_volume: str
    lost: float
    freed: float
    transfer_started: float
    copied: float
    mounted: float
    running: float
    step: int
    steps_lost: int
    before: Contents
    after: Contents

    @property
    def seconds(self) -> float:
        """Total duration."""
        return self.running - self.lost

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each of ``PARTS``; their sum is ``seconds``."""
        moments = (self.lost, self.freed, self.transfer_started, self.copied, self.mounted, self.running)
        return dict(zip(PARTS, (after - before for before, after in pairwise(moments)), strict=True))

    @property
    def intact(self) -> bool:
        """Whether the mounted content equals the unmounted content."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class JobMigrations:
    """The moves of a training job in order of time.

    ``underway``: at the end of the run training had not resumed after the last loss. A training step takes
    ``step_seconds``; a checkpoint follows every ``checkpoint_steps`` (0: unknown). ``read_gib`` and
    ``written_gib`` are the EFS traffic of a job without a volume.
    """

    moves: tuple[Move, ...]
    underway: bool
    step_seconds: float
    checkpoint_steps: int
    read_gib: float = 0.0
    written_gib: float = 0.0

    @property
    def is_on_file_system(self) -> bool:
        """Whether the job's data is on a file system that all zones can mount."""
        return self.written_gib > 0


def to_json(move: Move) -> dict[str, Any]:
    """Return a move as JSON values: times as epoch seconds, parts in seconds."""
    return {
        "at": move.lost,
        "cause": move.cause,
        "from": {"zone": move.from_zone, "volume": move.from_volume},
        "to": {"zone": move.to_zone, "volume": move.to_volume},
        "seconds": move.seconds,
        "parts": move.parts,
        "step": move.step,
        "steps_lost": move.steps_lost,
        "content": {
            "files": move.after.files,
            "before": move.before.digest,
            "after": move.after.digest,
            "equal": move.intact,
        },
    }
