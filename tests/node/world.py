"""EBS, one job's lease and the instances of one region, in memory, as AWS behaves and moto does not.

Modelled: volumes hold contents; a volume attaches in its own zone only and to one instance only; snapshots
take time and hold what was written when they were begun; descriptions lag; requests are throttled; a
terminated instance lets go of its volumes after a while. Every API call passes `World.call`, where a test
can kill the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.node.clocks import FakeClock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume.ebs import NotThereError, PassingError
from userdata.agent.storage.volume.lease import LEASE_SECONDS
from userdata.agent.storage.volume.model import EbsVolume, Lease, Snapshot

CREATE_SECONDS, ATTACH_SECONDS, DETACH_SECONDS, SNAPSHOT_SECONDS, DYING_SECONDS = 8.0, 6.0, 6.0, 40.0, 45.0


class KilledError(BaseException):
    """The process ends here: no handler of the agent may catch it."""


@dataclass
class Disk:
    """A volume as it really is. ``content``: None without a file system."""

    id: str
    zone: str
    size: int
    tags: dict[str, Any]
    ready_at: float
    content: tuple[str, ...] | None = None
    instance: str | None = None
    device: str | None = None
    settled_at: float = 0.0
    """When the attachment or detachment in progress is done."""
    detaching: bool = False
    mounted: bool = False


@dataclass
class Copy:
    id: str
    source: str
    content: tuple[str, ...] | None
    token: int
    ready_at: float


@dataclass
class Item:
    holder: str | None = None
    until: float = 0.0
    token: int = 0
    volume: str | None = None
    writer: int = 0


@dataclass
class World:
    clock: FakeClock
    lag: float = 0.0
    throttle: float = 0.0
    seed: int = 0
    disks: dict[str, Disk] = field(default_factory=dict)
    copies: dict[str, Copy] = field(default_factory=dict)
    item: Item = field(default_factory=Item)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(instance, operation) of every API call, in order."""
    before: Callable[[str, str], None] = lambda instance, operation: None
    after: Callable[[str, str], None] = lambda instance, operation: None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._history: list[tuple[float, tuple[EbsVolume, ...], tuple[Snapshot, ...]]] = []
        self._dying: dict[str, float] = {}
        self._made = 0
        self._client_tokens: dict[tuple[Any, ...], str] = {}

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
        for disk in self.disks.values():
            if disk.detaching and now >= disk.settled_at:
                disk.instance = disk.device = None
                disk.detaching = False

    def schedule_end(self, instance: str, seconds: float) -> None:
        """The instance dies in ``seconds``; nothing of it is mounted by then."""
        self._dying[instance] = self.clock.monotonic() + seconds + DYING_SECONDS

    def terminate(self, instance: str) -> None:
        """The instance dies: mounts end at once, attachments after a while."""
        for disk in self.disks.values():
            if disk.instance == instance:
                disk.mounted = False
        self._dying[instance] = self.clock.monotonic() + DYING_SECONDS

    def reboot(self, instance: str) -> None:
        for disk in self.disks.values():
            if disk.instance == instance:
                disk.mounted = False

    # --- calls ---

    def call(self, instance: str, operation: str, effect: Callable[[], Any], *, limited: bool = True) -> Any:
        self.settle()
        self.calls.append((instance, operation))
        self.before(instance, operation)
        if limited and self._random.random() < self.throttle:
            raise PassingError(f"ec2 {operation}: RequestLimitExceeded")
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
        now = self.clock.monotonic()
        found = []
        for disk in self.disks.values():
            attachment = None
            if disk.instance:
                attachment = (
                    "detaching" if disk.detaching else "attached" if now >= disk.settled_at else "attaching"
                )
            state = "creating" if now < disk.ready_at else "in-use" if disk.instance else "available"
            tags = disk.tags
            found.append(
                EbsVolume(
                    disk.id,
                    disk.zone,
                    state,
                    disk.instance,
                    attachment,
                    disk.device,
                    tags.get("token"),
                    tags.get("source"),
                    tags.get("state"),
                )
            )
        return tuple(found)

    def _snapshots(self) -> tuple[Snapshot, ...]:
        now = self.clock.monotonic()
        return tuple(
            Snapshot(c.id, "completed" if now >= c.ready_at else "pending", c.source, c.token)
            for c in self.copies.values()
        )

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}-{self._made:04}"

    def disk(self, volume: str) -> Disk:
        if volume not in self.disks:
            raise PassingError(f"InvalidVolume.NotFound: {volume}")
        return self.disks[volume]


class WorldEbs:
    """`Ebs` of one instance."""

    def __init__(self, world: World, instance: str, zone: str, size: int = 100) -> None:
        self._world, self._instance, self._zone, self._size = world, instance, zone, size

    def _call(self, operation: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._instance, operation, effect)

    def volumes(self) -> tuple[EbsVolume, ...]:
        found: tuple[EbsVolume, ...] = self._call("describe_volumes", lambda: self._world.seen()[0])
        return found

    def snapshots(self) -> tuple[Snapshot, ...]:
        found: tuple[Snapshot, ...] = self._call("describe_snapshots", lambda: self._world.seen()[1])
        return found

    def create_volume(self, zone: str, token: int, snapshot: str | None, source: str | None) -> str:
        def effect() -> str:
            world, key = self._world, (zone, token, snapshot)
            if key in world._client_tokens:
                return world._client_tokens[key]
            copy = world.copies.get(snapshot) if snapshot else None
            now = world.clock.monotonic()
            if snapshot and (copy is None or now < copy.ready_at):
                raise PassingError(f"InvalidSnapshot.NotFound: {snapshot}")
            tags = {"token": token, "state": "preparing", "source": source}
            volume = world.name("vol")
            world.disks[volume] = Disk(
                volume, zone, self._size, tags, now + CREATE_SECONDS, copy.content if copy else None
            )
            world._client_tokens[key] = volume
            return volume

        return str(self._call("create_volume", effect))

    def create_snapshot(self, volume: str, token: int) -> str:
        def effect() -> str:
            world, disk = self._world, self._world.disk(volume)
            snapshot = world.name("snap")
            ready_at = world.clock.monotonic() + SNAPSHOT_SECONDS
            world.copies[snapshot] = Copy(snapshot, volume, disk.content, token, ready_at)
            return snapshot

        return str(self._call("create_snapshot", effect))

    def attach(self, volume: str, instance: str, device: str) -> None:
        def effect() -> None:
            world, disk = self._world, self._world.disk(volume)
            if disk.zone != self._zone:
                raise AgentError(f"InvalidVolume.ZoneMismatch: {volume} is in {disk.zone}")
            if disk.instance is not None:
                raise PassingError(f"VolumeInUse: {volume}")
            if world.clock.monotonic() < disk.ready_at:
                raise PassingError(f"IncorrectState: {volume}")
            if any(d.instance == instance and d.device == device for d in world.disks.values()):
                raise AgentError(f"InvalidParameterValue: {device} is in use")
            disk.instance, disk.device = instance, device
            disk.settled_at = world.clock.monotonic() + ATTACH_SECONDS

        self._call("attach_volume", effect)

    def detach(self, volume: str, instance: str) -> None:
        def effect() -> None:
            disk = self._world.disk(volume)
            if disk.instance != instance or disk.detaching:
                raise PassingError(f"IncorrectState: {volume}")
            assert not disk.mounted, f"{volume} is detached while it is mounted"
            disk.detaching, disk.settled_at = True, self._world.clock.monotonic() + DETACH_SECONDS

        self._call("detach_volume", effect)

    def mark_live(self, volume: str, token: int) -> None:
        def effect() -> None:
            self._world.disk(volume).tags |= {"state": "live", "token": token}

        self._call("create_tags", effect)

    def delete_volume(self, volume: str) -> None:
        def effect() -> None:
            if volume not in self._world.disks:
                raise NotThereError(volume)
            if self._world.disks[volume].instance is not None:
                raise PassingError(f"VolumeInUse: {volume}")
            del self._world.disks[volume]

        self._call("delete_volume", effect)

    def delete_snapshot(self, snapshot: str) -> None:
        def effect() -> None:
            if self._world.copies.pop(snapshot, None) is None:
                raise NotThereError(snapshot)

        self._call("delete_snapshot", effect)


class WorldLease:
    """`LeaseStore` of one instance; DynamoDB's conditional writes do not lag."""

    def __init__(self, world: World, instance: str) -> None:
        self._world, self._instance = world, instance

    def _update(self, operation: str, effect: Callable[[Item], Any], token: int | None = None) -> Any:
        def guarded() -> Any:
            item = self._world.item
            if token is not None and (item.holder != self._instance or item.token != token):
                raise LeaseLostError(f"{operation}: held by {item.holder} under {item.token}")
            return effect(item)

        return self._world.call(self._instance, operation, guarded, limited=False)

    def acquire(self) -> Lease | None:
        def effect(item: Item) -> Lease | None:
            now = self._world.clock.wall()
            if item.holder not in (None, self._instance) and item.until >= now:
                return None
            item.holder, item.until, item.token = self._instance, now + LEASE_SECONDS, item.token + 1
            return Lease(item.token, item.volume, item.writer)

        lease: Lease | None = self._update("acquire", effect)
        return lease

    def renew(self, token: int) -> None:
        self._update("renew", lambda item: self._set(item), token)

    def claim(self, token: int) -> None:
        self._update("claim", lambda item: self._set(item, writer=token), token)

    def commit(self, token: int, volume: str) -> None:
        self._update("commit", lambda item: self._set(item, writer=token, volume=volume), token)

    def adopt(self, token: int, new_token: int, volume: str) -> None:
        def effect(item: Item) -> None:
            if item.volume is not None:
                raise LeaseLostError("adopt: the item names a volume")
            self._set(item, token=new_token, writer=new_token - 1, volume=volume)

        self._update("adopt", effect, token)

    def release(self, token: int) -> None:
        self._update("release", lambda item: self._set(item, holder=None), token)

    def _set(self, item: Item, **changes: Any) -> None:
        self._world.item = replace(item, until=self._world.clock.wall() + LEASE_SECONDS, **changes)


class WorldHost(SystemHost):
    """Devices and mounts of one instance."""

    def __init__(self, world: World, instance: str) -> None:
        super().__init__()
        self._world, self._instance = world, instance

    def _attached(self) -> list[Disk]:
        now = self._world.clock.monotonic()
        disks = self._world.disks.values()
        return [d for d in disks if d.instance == self._instance and now >= d.settled_at and not d.detaching]

    def _at(self, device: str) -> Disk:
        return next(d for d in self._attached() if f"/dev/nvme-{d.id}" == device)

    def device_of(self, volume: str) -> str | None:
        return next((f"/dev/nvme-{d.id}" for d in self._attached() if d.id == volume), None)

    def filesystem(self, device: str) -> str | None:
        return None if self._at(device).content is None else "xfs"

    def make_filesystem(self, device: str) -> None:
        disk = self._at(device)
        assert disk.content is None, f"{disk.id} is formatted over its content"
        disk.content = ()

    def mounted(self, path: Path) -> str | None:
        return next((f"/dev/nvme-{d.id}" for d in self._attached() if d.mounted), None)

    def mount(self, device: str, path: Path) -> None:
        assert self.mounted(path) is None
        disk = self._at(device)
        assert disk.content is not None
        disk.mounted = True

    def unmount(self, path: Path) -> None:
        next(d for d in self._attached() if d.mounted).mounted = False

    def write(self, line: str) -> None:
        """What training does: it appends to the mounted volume."""
        disk = next(d for d in self._attached() if d.mounted)
        assert disk.content is not None
        disk.content = (*disk.content, line)

    def content(self) -> tuple[str, ...]:
        disk = next(d for d in self._attached() if d.mounted)
        assert disk.content is not None
        return disk.content


class WorldFiller:
    """A dataset of two files; the marker comes last."""

    def __init__(self, host: WorldHost, parts: tuple[str, ...] = ("part-1", "part-2")) -> None:
        self._host, self._parts = host, parts

    def filled(self) -> bool:
        return "dataset complete" in self._host.content()

    def fill(self, keep_alive: Callable[[], None]) -> None:
        for part in self._parts:
            keep_alive()
            if part not in self._host.content():
                self._host.write(part)
        self._host.write("dataset complete")
