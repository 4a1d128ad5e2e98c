"""What the planner sees and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from contracts.agent.names import VOLUME_DEVICES
from userdata.agent.lease.store import Lease

PREPARING: Final = "preparing"
LIVE: Final = "live"
FOREIGN: Final = "?"


@dataclass(frozen=True)
class EbsVolume:
    """An EBS volume with the job's tags. ``token`` is None for one that was not made by the agent."""

    id: str
    zone: str
    state: str
    """``creating``, ``available``, ``in-use``, ``deleting``, ``deleted`` or ``error``."""
    instance: str | None
    """The instance that it is attached to, or on the way to or from."""
    attachment: str | None
    """``attaching``, ``attached``, ``detaching``, ``busy``; None without attachment."""
    device: str | None
    token: int | None
    source: str | None
    """The volume that it is a copy of."""
    tag_state: str | None
    size_gib: int = 0
    throughput_mib: int = 0
    """0 where the volume's type has no setting for it."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with the job's tags."""

    id: str
    state: str
    """``pending``, ``completed`` or ``error``."""
    source: str
    token: int | None
    progress: str = ""
    """Such as ``42%``."""
    started: float = 0.0
    """Epoch seconds."""
    size_gib: int = 0
    """Of the volume: a copy of it cannot be smaller."""


@dataclass(frozen=True)
class HeldVolume:
    """The outcome: the lease that is held and the volume that is mounted."""

    token: int
    volume: str


@dataclass(frozen=True)
class Observed:
    """One look at everything, through the eyes of ``instance`` in ``zone``, which holds ``lease``."""

    instance: str
    zone: str
    lease: Lease
    volumes: tuple[EbsVolume, ...]
    snapshots: tuple[Snapshot, ...]
    device: str | None
    """The block device of the volume that is to be mounted, once the kernel has it."""
    filesystem: str | None
    """The file system on that device; None: blank."""
    mounted: str | None
    """The volume whose device is mounted at the mount point; `FOREIGN` if it is none of ours."""
    filled: bool
    """The dataset is complete (always, if there is none)."""
    grown: bool = True
    """This run has seen to the home's size."""
    prepared: str | None = None
    """The snapshot of the dataset that a first volume is made from; None: it begins blank."""
    devices: tuple[str, ...] = VOLUME_DEVICES
    """The names that a volume may be attached by."""


# --- steps: what to do next, and why ---


@dataclass(frozen=True)
class Wait:
    """Look again later; the executor bounds how long one reason may last."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """Only a person can resolve this; nothing has been changed."""

    reason: str


@dataclass(frozen=True)
class Adopt:
    """Take the one volume that is there, though the item does not name it, as home."""

    volume: str
    token: int
    """The lease's new token, newer than any token on the job's volumes and snapshots."""


@dataclass(frozen=True)
class CreateVolume:
    """Create a volume in our zone: blank, from a prepared dataset's snapshot, or as a copy of ``source``.

    It has ``least_gib`` at least; 0: as large as the snapshot. ``attempt`` counts those of this lease that
    ended in state ``error``: a repeated request would name them.
    """

    snapshot: str | None
    source: str | None
    least_gib: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class CreateSnapshot:
    """Take a snapshot of the home, which nobody has attached."""

    volume: str


@dataclass(frozen=True)
class Attach:
    """Attach a volume of our zone to ourselves."""

    volume: str
    device: str


@dataclass(frozen=True)
class Format:
    """Make the file system on a volume that we created blank."""

    device: str


@dataclass(frozen=True)
class Claim:
    """Write our token as ``writer`` of the home, before it is mounted."""


@dataclass(frozen=True)
class Mount:
    """Mount the device."""

    device: str


@dataclass(frozen=True)
class Unmount:
    """Unmount what an earlier run on this instance left mounted."""


@dataclass(frozen=True)
class Commit:
    """Make the volume home, and us its writer, in one conditional write."""

    volume: str


@dataclass(frozen=True)
class MarkLive:
    """Write onto the home's tags that it is home (the item could be lost; tags stay with the volume)."""

    volume: str


@dataclass(frozen=True)
class Grow:
    """Bring the home to the size and speed that the stack file says, as far as EBS allows it now."""


@dataclass(frozen=True)
class Fill:
    """Copy what is missing of the dataset; mark it complete when it is."""


@dataclass(frozen=True)
class Discard:
    """Remove a leftover: detach it from ourselves if need be, delete it."""

    kind: Literal["detach", "volume", "snapshot"]
    id: str


@dataclass(frozen=True)
class Ready:
    """The home is here, mounted and filled; ``left`` names leftovers that another instance still holds."""

    volume: str
    left: tuple[str, ...] = ()


Step = (
    Wait
    | Refuse
    | Adopt
    | CreateVolume
    | CreateSnapshot
    | Attach
    | Format
    | Claim
    | Mount
    | Unmount
    | Commit
    | MarkLive
    | Grow
    | Fill
    | Discard
    | Ready
)
