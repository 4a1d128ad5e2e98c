"""Hostile images and programs of a tenant, in real containers; each that gets its way is a breach."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.real import containers as real
from tests.real import hostile_calls, tunnels
from tests.real.registry import PASSWORD, USER, add_image, bomb, registry
from tests.real.tenants import DISK_MIB, SharedHost, tenant, until
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.images.store import RESERVED_BYTES

EVE: Final = tenant("eve", 2009, command=("sh", "-c", "while :; do sleep 1; done"))
MARK: Final = "planted-by-eve"
_BOMB_MIB: Final = 2048
_ALLOWED_MIB: Final = 256
"""Of the disk for an image, before it leaves less than is reserved."""


@dataclass(frozen=True)
class HostileImage:
    """An image by the lines of its Dockerfile; ``volume`` is what it hopes to write to, empty if refused."""

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
        return [*_by_images(host), *_by_programs(host), *_by_calls(host), *tunnels.reached(host)]
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


def _by_calls(host: SharedHost) -> Iterator[str]:
    """Let eve have a Python, which makes system calls of its own."""
    real.take_in(real.python_image([]), real.PYTHON)
    neighbours = [str(pid) for name, pid in host.pids().items() if name != "eve"]
    wait = ("-c", "import time; time.sleep(1e6)")
    patient = replace(EVE, image=real.PYTHON, command=(str(real.INTERPRETER), *wait))
    host.tenants = (*host.tenants[:-1], patient)
    until(lambda: _runs(host, real.PYTHON), "eve runs a Python")
    script = Path(hostile_calls.__file__).read_text("utf-8")
    argv = ["docker", "exec", name_of("eve"), str(real.INTERPRETER), "-c", script, *neighbours]
    yield from subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def _outgrows_the_hosts_disk(host: SharedHost) -> bool:
    """Let eve name an image that unpacks to a thousand times its size."""
    folder, before, old = host.place.run.parent, host.free_bytes, host.tenants
    images = folder / "registry"
    images.mkdir()
    image = add_image(images, bomb(_BOMB_MIB))
    free = shutil.disk_usage(folder).free
    least = [free]

    def free_bytes(_: str) -> int:
        now = shutil.disk_usage(folder).free
        least.append(now)
        return RESERVED_BYTES + _ALLOWED_MIB * 2**20 - (free - now)

    host.free_bytes = free_bytes
    host.secrets["registry"] = json.dumps({"username": USER, "password": PASSWORD})
    try:
        with registry(host.inside, images):
            host.tenants = (*old[:-1], replace(EVE, image=image, registry_secret="registry"))
            until(lambda: "does not fit" in host.heartbeats.waits.get("eve", ""), "the image is refused")
            host.tenants = old
            until(lambda: host.heartbeats.waits == {} and _runs(host, EVE.image), "eve runs again")
    finally:
        host.free_bytes = before
    stored = subprocess.run(["du", "-sm", str(folder / "data")], capture_output=True, text=True).stdout
    has_rest = int(stored.split()[0]) > _ALLOWED_MIB
    return has_rest or free - min(least) > _BOMB_MIB * 2**20 // 2


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
    "outgrows the host's disk by a layer of zeros": _outgrows_the_hosts_disk,
    "floods its log": _floods_its_log,
    "has links followed": _has_links_followed,
    "outlives its end": _outlives_its_end,
}
