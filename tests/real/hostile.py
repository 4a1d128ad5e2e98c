"""Hostile images and programs of a tenant, in real containers; each that gets its way is a breach."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.real import containers as real
from tests.real.tenants import DISK_MIB, SharedHost, tenant, until
from userdata.agent.tenants.host.container import name_of

EVE: Final = tenant("eve", 2009, command=("sh", "-c", "while :; do sleep 1; done"))
MARK: Final = "planted-by-eve"


@dataclass(frozen=True)
class HostileImage:
    """An image by the lines of its Dockerfile; ``volume`` is what it hopes to write to, empty if refused.

    One that leads to the notice's directory is not even writable (``is_writable``).
    """

    name: str
    lines: tuple[str, ...]
    volume: str = ""
    is_writable: bool = True


IMAGES: Final = (
    HostileImage("a volume on the host's disk", ("VOLUME /cache",), "/cache"),
    HostileImage("a volume in its data", ("VOLUME /data/db",), "/data/db"),
    HostileImage("a volume in its temporary directory", ("VOLUME /tmp/deep/er",), "/tmp/deep/er"),
    HostileImage("a volume with a slash at its end", ('VOLUME ["/cache/"]',), "/cache"),
    HostileImage("a volume behind a symbolic link", ("VOLUME /link",), "/link", is_writable=False),
    HostileImage("sixteen volumes", tuple(f"VOLUME /v{n}" for n in range(16)), "/v15"),
    HostileImage("a volume in place of programs", ("VOLUME /etc",), "/etc"),
    HostileImage("a user of its own", ("USER 0", "VOLUME /cache"), "/cache"),
    HostileImage("seventeen volumes", tuple(f"VOLUME /v{n}" for n in range(17))),
    HostileImage("a volume over the kernel's files", ("VOLUME /proc",)),
    HostileImage("a volume over devices", ("VOLUME /dev/shm",)),
    HostileImage("a volume over its notice", ("VOLUME /run/gpu-spot",)),
    HostileImage("a volume above its notice", ("VOLUME /run",)),
    HostileImage("a volume upwards", ('VOLUME ["/cache/../etc"]',)),
    HostileImage("a volume with options", ('VOLUME ["/cache:exec"]',)),
    HostileImage("a working directory in a descriptor", ("WORKDIR /proc/self/fd/8",)),
)

# Scripts that end with 0 where the tenant does what it must not do.
PROGRAMS: Final = {
    "mounts a file system": "busybox mount -t tmpfs none /tmp",
    "may change a kernel setting": "test -w /proc/sys/kernel/printk",
    "renames its host": "busybox hostname mine",
    "changes an interface": "busybox ip link set lo down",
    "writes to the devices' directory": "touch /dev/mine",
    "fills shared memory beyond its half": "dd if=/dev/zero of=/dev/shm/big bs=1M count=600",
    "enters another root": "busybox chroot / true",
    "sends ARP packets": (
        "busybox arping -c 1 -w 1 -I eth0 $(busybox ip route | busybox awk '{print $3; exit}')"
    ),
    "reads the kernel's log": 'test -n "$(busybox dmesg)"',
    "may change the kernel": "for f in /sys/kernel/*; do test -f $f && test -w $f && exit; done; false",
    "becomes another user": "busybox setuidgid root true || busybox su root -c true",
}
TRIED: Final = "; ".join(
    f"if ({script}) >/dev/null 2>&1; then echo {shlex.quote(what)}; fi" for what, script in PROGRAMS.items()
)


def succeeded(host: SharedHost) -> list[str]:
    """Return the attacks that get their way; the tenants of ``host`` are the same afterwards."""
    before = host.tenants
    try:
        return [*_by_images(host), *_by_programs(host)]
    finally:
        host.tenants = before
        until(lambda: "eve" not in host.inspected() and "eve" not in host.disks.here, "eve is gone")


def _by_images(host: SharedHost) -> Iterator[str]:
    others, packed = host.tenants, _packed(host)
    for number, image in enumerate(IMAGES):
        name = f"gpu-spot/hostile:{number}"
        changes = [part for line in image.lines for part in ("--change", line)]
        subprocess.run(
            ["docker", "import", *changes, "-", name], input=packed, check=True, capture_output=True
        )
        host.tenants = (*others, replace(EVE, image=name))
        if image.volume:
            until(lambda name=name: _runs(host, name), f"eve runs {image.name}")  # type: ignore[misc]
            if said := _outgrown(host, image):
                yield f"image with {image.name}: {said}"
        else:
            until(lambda: "image with" in host.heartbeats.waits.get("eve", ""), f"{image.name} is refused")
            if _runs(host, name):
                yield f"image with {image.name} runs"
        host.tenants = others
        until(lambda: "eve" not in host.inspected(), "eve has ended")
    if any((host.place.run.parent / "data" / "volumes").glob("*/_data")):
        yield "anonymous volumes are left"


def _packed(host: SharedHost) -> bytes:
    """Return the tenants' image as a tar."""
    host.docker("create", "--name", "packed", real.IMAGE, "true")
    try:
        return subprocess.run(["docker", "export", "packed"], check=True, capture_output=True).stdout
    finally:
        host.docker("rm", "packed")


def _runs(host: SharedHost, image: str) -> bool:
    found = host.inspected().get("eve")
    return found is not None and found["State"]["Running"] and found["Config"]["Image"] == image


def _outgrown(host: SharedHost, image: HostileImage) -> str:
    """Return what is wrong about a volume that eve fills, empty if it is bounded."""
    volume = image.volume
    script = f"dd if=/dev/zero of={volume}/{MARK} bs=1M count={DISK_MIB} && echo larger than its disk"
    said = host.within("eve", script).stdout.strip()
    store = host.place.run.parent / "data" / "volumes"
    if any(store.rglob(MARK)):
        said += " on the host's disk"
    if image.is_writable and host.within("eve", f"test -s {volume}/{MARK}").returncode:
        said += " its volume cannot be written to"
    if host.within("eve", 'test "$(id -u)" = 2009').returncode:
        said += " another user"
    return said.strip()


def _by_programs(host: SharedHost) -> Iterator[str]:
    host.tenants = (*host.tenants, EVE)
    until(lambda: _runs(host, EVE.image), "eve runs")
    yield from host.within("eve", f"{TRIED}; rm -f /dev/shm/big").stdout.splitlines()
    for name, behaviour in BEHAVIOURS.items():
        if behaviour(host):
            yield name


def _floods_its_log(host: SharedHost) -> bool:
    """Let eve print 100 MiB; return whether more than two files of 20 MiB are on the host's disk."""
    [id_] = [found["Id"] for name, found in host.inspected().items() if name == "eve"]
    host.within(
        "eve", "dd if=/dev/zero bs=1M count=100 | busybox tr '\\0' 'x' | busybox fold -w 1000 > /proc/1/fd/1"
    )
    place = host.place.run.parent / "data" / "containers" / id_
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    return not 0 < size < 45 * 2**20


def _has_links_followed(host: SharedHost) -> bool:
    """Let eve plant links out of its data before its user changes; return whether files of others change."""
    outside = host.place.run.parent / "root-owned"
    outside.write_text("x")
    links = f"ln -s {outside} /data/link; ln -s {outside.parent} /data/d/up; ln -s / /log/root"
    host.within("eve", f"mkdir /data/d; {links}")
    old = host.tenants
    host.tenants = (*old[:-1], replace(old[-1], uid=2010))
    until(lambda: host.users().get("eve") == 2010, "eve has another user")
    owners = {path.stat().st_uid for path in (outside, outside.parent, Path("/"))}
    mine = host.within("eve", "touch /data/still && stat -c %u /data/d").stdout.strip()
    return owners != {0} or mine != "2010"


def _outlives_its_end(host: SharedHost) -> bool:
    """Let eve start programs of their own sessions; return whether one runs after its container has ended."""
    host.within("eve", "busybox setsid busybox nohup sleep 7777 >/dev/null 2>&1 &")
    host.docker("kill", name_of("eve"))
    until(lambda: _runs(host, EVE.image), "eve runs again")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return "sleep 7777" in listed


BEHAVIOURS: Final = {
    "floods its log": _floods_its_log,
    "has links followed": _has_links_followed,
    "outlives its end": _outlives_its_end,
}
