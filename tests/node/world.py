"""EBS, one job's item and the instances of one region, in memory, as AWS behaves and moto does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

from tests.node.configs import FakeClock
from tests.node.job_table import Attributes, JobTable
from userdata.agent.lease.store import DynamoLease
from userdata.agent.machine.errors import AgentError, TransientError
from userdata.agent.storage.volume.model import FAILED, PREPARING, CreateVolume, EbsVolume, Snapshot

CREATE_SECONDS, ATTACH_SECONDS, DETACH_SECONDS, SNAPSHOT_SECONDS, DYING_SECONDS = 8.0, 6.0, 6.0, 40.0, 45.0

MODIFY_SECONDS, OPTIMIZING_SECONDS, DELETE_SECONDS = 12.0, 3600.0, 7.0

Content = tuple[str, ...]


class KilledError(BaseException):
    """The process ends here: no handler of the agent may catch it."""


@dataclass
class Disk:
    """A volume as it really is."""

    id: str
    zone: str
    size: int
    tags: dict[str, Any]
    ready_at: float
    durable: Content | None = None
    content: Content | None = None
    instance: str | None = None
    device: str | None = None
    settled_at: float = 0.0
    """When the attachment or detachment in progress is done."""
    detaching: bool = False
    mounted: bool = False
    frozen: bool = False
    throughput: int = 125
    filesystem_gib: int = 0
    larger_at: float = 0.0
    """When the kernel sees the new size."""
    failed: bool = False
    """In state ``error``."""
    half_made: bool = False
    """mkfs was killed: the superblock is there, and a mount fails."""
    gone_at: float | None = None
    """When it has been deleted; until then it is in state ``deleting``."""


@dataclass
class Copy:
    id: str
    source: str
    content: Content | None
    token: int
    ready_at: float
    started: float = 0.0
    size: int = 0
    failed: bool = False


@dataclass
class World:
    clock: FakeClock
    lag: float = 0.0
    throttle: float = 0.0
    seed: int = 0
    disks: dict[str, Disk] = field(default_factory=dict)
    copies: dict[str, Copy] = field(default_factory=dict)
    item: Attributes = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(instance, operation) of every call to AWS, in order."""
    before: Callable[[str, str], None] = lambda instance, operation: None
    after: Callable[[str, str], None] = lambda instance, operation: None
    point: Callable[[str, str], None] = lambda instance, operation: None
    """Before every call, also those to the operating system."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._history: list[tuple[float, tuple[EbsVolume, ...], tuple[Snapshot, ...]]] = []
        self._dying: dict[str, float] = {}
        self._made = 0
        self._client_tokens: dict[tuple[Any, ...], str] = {}

    @property
    def home(self) -> str | None:
        return self.item["volume"]["S"] if "volume" in self.item else None

    @property
    def holder(self) -> str | None:
        return self.item["holder"]["S"] if "holder" in self.item else None

    # --- time ---

    def settle(self) -> None:
        now = self.clock.monotonic()
        for instance, at in list(self._dying.items()):
            if now >= at:
                del self._dying[instance]
                for disk in self.disks.values():
                    if disk.instance == instance:
                        disk.instance = disk.device = None
                        disk.detaching = False
        for disk in [d for d in self.disks.values() if d.gone_at is not None and now >= d.gone_at]:
            del self.disks[disk.id]
        for disk in self.disks.values():
            if disk.detaching and now >= disk.settled_at:
                disk.instance = disk.device = None
                disk.detaching = False

    def schedule_end(self, instance: str, seconds: float) -> None:
        """The instance dies in ``seconds``; nothing of it is mounted by then."""
        self._dying[instance] = self.clock.monotonic() + seconds + DYING_SECONDS

    def terminate(self, instance: str) -> None:
        """The instance dies: mounts end at once, attachments after a while."""
        self.reboot(instance)
        self._dying[instance] = self.clock.monotonic() + DYING_SECONDS

    def reboot(self, instance: str) -> None:
        """What the kernel had not written yet is gone."""
        for disk in self.disks.values():
            if disk.instance == instance:
                disk.mounted, disk.content = False, disk.durable

    # --- calls ---

    def call(self, instance: str, operation: str, effect: Callable[[], Any], *, limited: bool = True) -> Any:
        self.point(instance, operation)
        self.settle()
        self.calls.append((instance, operation))
        self.before(instance, operation)
        if limited and self._random.random() < self.throttle:
            raise TransientError(f"ec2 {operation}: RequestLimitExceeded")
        self._remember()
        result = effect()
        self._remember()
        self.after(instance, operation)
        return result

    def _remember(self) -> None:
        if not self.lag:
            return
        self._history.append((self.clock.monotonic(), self._volumes(), self._snapshots()))

    def seen(self) -> tuple[tuple[EbsVolume, ...], tuple[Snapshot, ...]]:
        """What a description shows: a state at most ``lag`` seconds old, each time another one."""
        if not self.lag:
            return self._volumes(), self._snapshots()
        moment = self.clock.monotonic() - self._random.uniform(0, self.lag)
        for at, volumes, snapshots in reversed(self._history):
            if at <= moment:
                return volumes, snapshots
        return (), ()

    def _volumes(self) -> tuple[EbsVolume, ...]:
        return tuple(self._seen_disk(disk) for disk in self.disks.values())

    def _seen_disk(self, disk: Disk) -> EbsVolume:
        now = self.clock.monotonic()
        attachment = None
        if disk.instance:
            attachment = (
                "detaching" if disk.detaching else "attached" if now >= disk.settled_at else "attaching"
            )
        state = "creating" if now < disk.ready_at else "in-use" if disk.instance else "available"
        tags = disk.tags
        return EbsVolume(
            disk.id,
            disk.zone,
            "deleting" if disk.gone_at is not None else "error" if disk.failed else state,
            disk.instance,
            attachment,
            disk.device,
            tags.get("token"),
            tags.get("source"),
            tags.get("state"),
            disk.size,
            disk.throughput,
            tags.get("creator", ""),
        )

    def _snapshots(self) -> tuple[Snapshot, ...]:
        now = self.clock.monotonic()

        def state(copy: Copy) -> str:
            return "error" if copy.failed else "completed" if now >= copy.ready_at else "pending"

        return tuple(
            Snapshot(c.id, state(c), c.source, c.token, started=c.started, size_gib=c.size)
            for c in self.copies.values()
        )

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}-{self._made:04}"

    def disk(self, volume: str) -> Disk:
        if volume not in self.disks or self.disks[volume].gone_at is not None:
            raise TransientError(f"InvalidVolume.NotFound: {volume}")
        return self.disks[volume]


class WorldLease(DynamoLease):
    """The shipped lease of one instance, on the world's item. DynamoDB's conditional writes do not lag."""

    def __init__(self, world: World, instance: str) -> None:
        def call(operation: str, effect: Callable[[], Any]) -> Any:
            return world.call(instance, operation, effect, limited=False)

        table: Any = JobTable(world.item, call)
        super().__init__(table, "jobs", "job", instance, world.clock)


def _asking(operation: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method's effect that of a call of AWS."""

    def asking(effect: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(effect)
        def call(ebs: WorldEbs, *arguments: Any) -> Any:
            return ebs._world.call(ebs._instance, operation, partial(effect, ebs, *arguments))

        return call

    return asking


class WorldEbs:
    """`Ebs` of one instance."""

    def __init__(self, world: World, instance: str, zone: str, size: int = 100) -> None:
        self._world, self._instance, self._zone, self._size = world, instance, zone, size

    @_asking("describe_volumes")
    def volumes(self) -> tuple[EbsVolume, ...]:
        return self._world.seen()[0]

    @_asking("describe_snapshots")
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self._world.seen()[1]

    @_asking("create_volume")
    def create_volume(self, zone: str, token: int, instance: str, wanted: CreateVolume) -> str:
        world, snapshot = self._world, wanted.snapshot
        key = (zone, token, snapshot, wanted.attempt)
        if key in world._client_tokens:
            return world._client_tokens[key]
        copy = world.copies.get(snapshot) if snapshot else None
        now = world.clock.monotonic()
        if snapshot and (copy is None or now < copy.ready_at):
            raise TransientError(f"InvalidSnapshot.NotFound: {snapshot}")
        tags = {"token": token, "state": PREPARING, "source": wanted.source, "creator": instance}
        volume, content = world.name("vol"), copy.content if copy else None
        size = max(self._size, wanted.min_size_gib)
        world.disks[volume] = Disk(volume, zone, size, tags, now + CREATE_SECONDS, content, content)
        world._client_tokens[key] = volume
        return volume

    @_asking("modify_volume")
    def modify_volume(self, volume: str, size_gib: int, throughput_mib: int) -> None:
        disk, now = self._world.disk(volume), self._world.clock.monotonic()
        if disk.larger_at and now < disk.larger_at + OPTIMIZING_SECONDS:
            raise AgentError("ec2 modify_volume: IncorrectModificationState")
        assert not 0 < size_gib < disk.size, "EBS volumes do not shrink"
        disk.size, disk.throughput = size_gib or disk.size, throughput_mib or disk.throughput
        disk.larger_at = now + MODIFY_SECONDS

    @_asking("create_snapshot")
    def create_snapshot(self, volume: str, token: int) -> str:
        world, disk = self._world, self._world.disk(volume)
        snapshot = world.name("snap")
        ready_at = world.clock.monotonic() + SNAPSHOT_SECONDS
        now = world.clock.wall()
        world.copies[snapshot] = Copy(snapshot, volume, disk.durable, token, ready_at, now, disk.size)
        return snapshot

    @_asking("attach_volume")
    def attach(self, volume: str, instance: str, device: str) -> None:
        world, disk = self._world, self._world.disk(volume)
        if disk.zone != self._zone:
            raise AgentError(f"InvalidVolume.ZoneMismatch: {volume} is in {disk.zone}")
        if disk.instance is not None:
            raise TransientError(f"VolumeInUse: {volume}")
        if disk.failed:
            raise TransientError(f"IncorrectState: {volume}")
        if world.clock.monotonic() < disk.ready_at:
            raise TransientError(f"IncorrectState: {volume}")
        if any(d.instance == instance and d.device == device for d in world.disks.values()):
            raise AgentError(f"InvalidParameterValue: {device} is in use")
        disk.instance, disk.device = instance, device
        disk.settled_at = world.clock.monotonic() + ATTACH_SECONDS

    @_asking("detach_volume")
    def detach(self, volume: str, instance: str) -> None:
        disk = self._world.disk(volume)
        if disk.instance != instance or disk.detaching:
            raise TransientError(f"IncorrectState: {volume}")
        assert not disk.mounted, f"{volume} is detached while it is mounted"
        disk.detaching, disk.settled_at = True, self._world.clock.monotonic() + DETACH_SECONDS

    @_asking("create_tags")
    def mark_live(self, volume: str, token: int) -> None:
        self._world.disk(volume).tags |= {"state": "live", "token": token}

    @_asking("create_tags")
    def mark_failed(self, volume: str, reason: str) -> None:
        self._world.disk(volume).tags["state"] = f"{FAILED}: {reason}"

    @_asking("delete_volume")
    def delete_volume(self, volume: str) -> bool:
        disk = self._world.disks.get(volume)
        if disk is None or disk.gone_at is not None:
            return True
        if disk.instance is not None:
            raise TransientError(f"VolumeInUse: {volume}")
        disk.gone_at = self._world.clock.monotonic() + DELETE_SECONDS
        return True

    @_asking("delete_snapshot")
    def delete_snapshot(self, snapshot: str) -> bool:
        self._world.copies.pop(snapshot, None)
        return True
