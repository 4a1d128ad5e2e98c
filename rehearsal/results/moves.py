"""Where a training job and its data volume were, and how it got from one instance to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Contents:
    """What is on a volume: the number of files, and a SHA-256 over their names and bytes."""

    files: int
    digest: str


@dataclass(frozen=True, slots=True)
class Stay:
    """A time (epoch seconds) that a volume spent in a zone: in use by an instance, or waiting for one.

    Of a file system, whose access point stands for ``volume``, only when an instance there used it.
    """

    volume: str
    zone: str
    begin: float
    end: float
    in_use: bool


Cause = Literal["notice", "loss", "hand-over"]
"""Why an instance ended: AWS announced it, AWS took it, or the controller gave the job to a successor."""

PARTS: Final[Mapping[str, str]] = {
    "release": "from the notice, the loss or the hand-over until the volume is saved and free",
    "wait": "for an instance, its boot and the lease",
    "snapshot": "until it is complete; none in the same zone",
    "attach": "create in the new zone, attach and mount",
    "start": "checkout, start, and load until the first step",
}
"""The parts of a move in order, and what each is."""


@dataclass(frozen=True, slots=True)
class Move:
    """How training went on after an instance ended. All times are epoch seconds.

    The instance was ``lost`` (with a notice: at the notice) and the volume ``freed``. The next instance has
    ``begun`` to bring it, by a snapshot or by attaching it, had it ``copied`` (at once in the same zone) and
    ``mounted``, and training was ``running`` again, at its first step. ``before`` and ``after`` are the
    contents at the last unmounting and at the next mounting; it went on at ``step``.
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
        """The whole time."""
        return self.running - self.lost

    @property
    def parts(self) -> dict[str, float]:
        """The seconds of each of ``PARTS``; together ``seconds``."""
        moments = (self.lost, self.freed, self.transfer_started, self.copied, self.mounted, self.running)
        return dict(zip(PARTS, (after - before for before, after in pairwise(moments)), strict=True))

    @property
    def intact(self) -> bool:
        """Whether what was mounted is what was unmounted."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class JobMigrations:
    """A training job's moves in order of time, and where its volume was.

    ``underway`` says that the last loss had not been overcome when the run ended. A training step takes
    ``step_seconds``, and after every ``checkpoint_steps`` there is a checkpoint; 0 where nobody knows.
    ``read_gib`` and ``written_gib`` are EFS's, of a job whose checkpoints lie there and which has no volume.
    """

    moves: tuple[Move, ...]
    stays: tuple[Stay, ...]
    underway: bool
    step_seconds: float
    checkpoint_steps: int
    read_gib: float = 0.0
    written_gib: float = 0.0

    @property
    def is_on_file_system(self) -> bool:
        """Whether what follows the job is in every zone at once."""
        return self.written_gib > 0

    @property
    def zones(self) -> tuple[str, ...]:
        """Where the volume ever was."""
        return tuple(sorted({stay.zone for stay in self.stays}))


@dataclass(frozen=True, slots=True)
class JobEnding:
    """What became of a job whose own command was really run.

    ``state`` is the job table's (``running``, ``done``, ``failed``) and ``revision`` what was cloned.
    ``results`` are the files among its artifacts with their SHA-256, ``undisturbed`` those of a run that
    nobody interrupted.
    """

    state: str
    repository: str
    revision: str
    command: tuple[str, ...]
    results: Mapping[str, str]
    undisturbed: Mapping[str, str]

    @property
    def intact(self) -> bool:
        """Whether interruptions have changed nothing: there are results, and they are the same bits."""
        return bool(self.results) and self.results == self.undisturbed


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
