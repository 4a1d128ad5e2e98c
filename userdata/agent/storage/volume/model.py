"""Input and output of the planner: the observed state and the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from contracts.agent.names import VOLUME_DEVICES
from userdata.agent.lease.store import Lease

PREPARING: Final = "preparing"
LIVE: Final = "live"
FAILED: Final = "failed"
"""A candidate on which a step failed; the text of the error follows in the tag."""
FOREIGN: Final = "?"
DELETED_STATES: Final = ("deleting", "deleted")


@dataclass(frozen=True)
class EbsVolume:
    """An EBS volume with the job's tags. ``token`` is None if the agent did not create it."""

    id: str
    zone: str
    state: str
    """``creating``, ``available``, ``in-use``, ``deleting``, ``deleted`` or ``error``."""
    instance: str | None
    """The instance that it is attached to, or attaching to or detaching from."""
    attachment: str | None
    """``attaching``, ``attached``, ``detaching``, ``busy``; None without attachment."""
    device: str | None
    token: int | None
    source: str | None
    """The volume of which it is a copy."""
    tag_state: str | None
    size_gib: int = 0
    throughput_mib: int = 0
    """0 if the volume's type has no throughput setting."""
    creator: str = ""
    """The instance that created it."""

    @property
    def is_candidate(self) -> bool:
        """Whether it was created to become a current volume and never became one."""
        return self.tag_state is not None and self.tag_state.startswith((PREPARING, FAILED))

    @property
    def has_failed(self) -> bool:
        """Whether it can never become a current volume: EBS or a step on this candidate failed."""
        return self.is_candidate and (self.state == "error" or self.tag_state != PREPARING)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with the job's tags. ``token`` is None if a user tagged it for the job."""

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
    """Size of the source volume: the minimum size of a copy."""


@dataclass(frozen=True)
class HeldVolume:
    """The result: the token of the lease and the mounted volume."""

    token: int
    volume: str


@dataclass(frozen=True)
class Observed:
    """One observation by ``instance`` in ``zone``, which holds ``lease``."""

    instance: str
    zone: str
    lease: Lease
    volumes: tuple[EbsVolume, ...]
    snapshots: tuple[Snapshot, ...]
    device: str | None
    """The block device of the volume to mount; None until the kernel has it."""
    filesystem: str | None
    """The file system on that device; None: blank."""
    mounted: str | None
    """The volume mounted at the mount point; `FOREIGN` if it is not a volume of this job."""
    filled: bool
    """Whether the dataset is complete (true without a dataset)."""
    grown: bool = True
    """Whether this run has adjusted the volume's size."""
    prepared: str | None = None
    """The dataset's snapshot from which a first volume is created; None: a blank volume."""
    unclaimed: tuple[str, ...] = ()
    """Volumes or snapshots that belong to no job and have the name of jobs' volumes; looked up for the first
    volume of a job."""
    devices: tuple[str, ...] = VOLUME_DEVICES
    """The allowed device names for a volume."""

    @property
    def is_first_volume(self) -> bool:
        """Whether the job has no volume or snapshot and never had one."""
        lease = self.lease
        return lease.volume is None and not lease.writer and not self.volumes and not self.snapshots


# --- steps ---


@dataclass(frozen=True)
class Wait:
    """Observe again later; the executor limits how long one reason may last."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """Only an operator can resolve the state; nothing has been changed."""

    reason: str


@dataclass(frozen=True)
class Adopt:
    """Make the only existing volume the current volume, though the item does not name it."""

    volume: str
    token: int
    """The lease's new token, newer than any token on the job's volumes and snapshots."""


@dataclass(frozen=True)
class CreateVolume:
    """Create a volume in this zone: blank, from a prepared dataset's snapshot, or as a copy of ``source``.

    ``min_size_gib`` 0: the size of the snapshot. ``attempt`` counts the candidates that failed: with the same
    client token EC2 would return one of them.
    """

    snapshot: str | None
    source: str | None
    min_size_gib: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class CreateSnapshot:
    """Take a snapshot of the current volume, which is detached."""

    volume: str


@dataclass(frozen=True)
class Attach:
    """Attach a volume of this zone to this instance."""

    volume: str
    device: str


@dataclass(frozen=True)
class Format:
    """Create the file system on a new blank volume."""

    device: str


@dataclass(frozen=True)
class Claim:
    """Set ``writer`` to the lease's token, before the current volume is mounted."""


@dataclass(frozen=True)
class Mount:
    """Mount the device."""

    device: str


@dataclass(frozen=True)
class Unmount:
    """Unmount a volume that an earlier run on this instance left mounted."""


@dataclass(frozen=True)
class Commit:
    """Set the current volume and its writer in one conditional write."""

    volume: str


@dataclass(frozen=True)
class MarkLive:
    """Tag the current volume as live (the table item could be lost; tags stay with the volume)."""

    volume: str


@dataclass(frozen=True)
class Grow:
    """Modify the current volume's size and throughput as configured, as far as EBS allows."""


@dataclass(frozen=True)
class Fill:
    """Copy the missing files of the dataset and mark it complete."""


@dataclass(frozen=True)
class Discard:
    """Remove a leftover: detach it from this instance, or delete it."""

    kind: Literal["detach", "volume", "snapshot"]
    id: str


@dataclass(frozen=True)
class Ready:
    """The current volume is mounted and filled; ``leftovers`` are volumes still attached elsewhere."""

    volume: str
    leftovers: tuple[str, ...] = ()


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
