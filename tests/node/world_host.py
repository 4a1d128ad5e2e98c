"""The operating system of a simulated instance: devices, mounts, and writes that are not flushed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.node.world import Content, Disk, World
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost


class WorldHost(SystemHost):
    """Devices and mounts of one instance. What is written is safe on the volume once it is flushed."""

    def __init__(self, world: World, instance: str) -> None:
        super().__init__()
        self._world, self._instance = world, instance

    def _attached(self) -> list[Disk]:
        now = self._world.clock.monotonic()
        disks = self._world.disks.values()
        return [d for d in disks if d.instance == self._instance and now >= d.settled_at and not d.detaching]

    def _at(self, device: str) -> Disk:
        return next(d for d in self._attached() if f"/dev/nvme-{d.id}" == device)

    def _mounted(self) -> Disk:
        return next(d for d in self._attached() if d.mounted)

    def device_of(self, volume: str) -> str | None:
        return next((f"/dev/nvme-{d.id}" for d in self._attached() if d.id == volume), None)

    def filesystem(self, device: str) -> str | None:
        return None if self._at(device).content is None else "xfs"

    def make_filesystem(self, device: str) -> None:
        self._world.point(self._instance, "mkfs")
        disk = self._at(device)
        assert disk.content is None, f"{disk.id} is formatted over its content"
        disk.content = disk.durable = ()
        disk.half_made = True
        self._world.point(self._instance, "end of mkfs")
        disk.half_made = False

    def mounted(self, path: Path) -> str | None:
        return next((f"/dev/nvme-{d.id}" for d in self._attached() if d.mounted), None)

    def mount(self, device: str, path: Path) -> None:
        self._world.point(self._instance, "mount")
        assert self.mounted(path) is None
        disk = self._at(device)
        assert disk.content is not None
        if disk.half_made:
            raise AgentError("mount: exit 32: Structure needs cleaning.")
        disk.mounted = True

    def unmount(self, path: Path) -> None:
        self._world.point(self._instance, "unmount")
        disk = self._mounted()
        disk.mounted, disk.durable = False, disk.content

    def write(self, line: str) -> None:
        """What training does: it appends to the mounted volume, that is to the kernel's memory."""
        self._world.point(self._instance, "write")
        disk = self._mounted()
        assert disk.content is not None
        assert not disk.frozen, "a writer would stand still"
        disk.content = (*disk.content, line)

    def sync(self) -> None:
        self._world.point(self._instance, "sync")
        disk = self._mounted()
        disk.durable = disk.content

    def capacity(self, device: str) -> int:
        disk = self._at(device)
        return (disk.size if self._world.clock.monotonic() >= disk.larger_at else 0) * 2**30

    def grow(self, device: str, path: Path) -> None:
        self._world.point(self._instance, "grow")
        disk = self._at(device)
        assert disk.mounted
        disk.filesystem_gib = self.capacity(device) // 2**30

    @contextlib.contextmanager
    def frozen(self, path: Path) -> Iterator[None]:
        """A guard thaws it whoever dies."""
        self._world.point(self._instance, "freeze")
        disk = self._mounted()
        disk.durable, disk.frozen = disk.content, True
        try:
            yield
            self._world.point(self._instance, "thaw")
        finally:
            disk.frozen = False

    def content(self) -> Content:
        content = self._mounted().content
        assert content is not None
        return content


class WorldFiller:
    """A dataset of two files; the marker comes last, and after the files are safe."""

    def __init__(self, host: WorldHost, parts: tuple[str, ...] = ("part-1", "part-2")) -> None:
        self._host, self._parts = host, parts

    def is_complete(self) -> bool:
        is_marked = "dataset complete" in self._host.content()
        assert not is_marked or set(self._parts) <= set(self._host.content()), "a marker without its files"
        return is_marked

    def fill(self, keep_alive: Callable[[], None]) -> None:
        for part in self._parts:
            keep_alive()
            if part not in self._host.content():
                self._host.write(part)
        self._host.sync()
        self._host.write("dataset complete")
        self._host.sync()
