"""How a tenant could break out of its container, tried one by one; each that succeeds is a breach."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.real import containers as real
from tests.real.tenants import ADDRESS, DISK_MIB, SERVICE, SharedHost
from userdata.agent.tenants.host import firewall
from userdata.agent.tenants.host.container import MAX_PIDS

# Scripts that end with 0 where the tenant has what it must not have.
ALONE = {
    "is root": 'test "$(id -u)" = 0',
    "gets root by a set-user-id program": 'test "$(/suid/id -u)" = 0',
    "has privileges": "! grep -q '^CapEff:.0000000000000000$' /proc/self/status",
    "may get privileges": "! grep -q '^NoNewPrivs:.1$' /proc/self/status",
    "writes to the image": "touch /bin/mine || touch /mine || touch /etc/mine",
    "writes beside its notice": "touch /run/gpu-spot/mine",
    "sees files of the agent": 'test -n "$(ls /run/gpu-spot | grep -v ^notice.json$)"',
    "sees the socket of Docker": "test -e /var/run/docker.sock || test -e /run/docker.sock",
    "sees devices": "ls /dev | grep -E '^(nvidia|sd|nvme|loop|vd|mem|kmsg|fuse|dri|gpu)'",
    "makes devices": "busybox mknod /data/disk b 7 0 || busybox mknod /tmp/mem c 1 1",
    "outgrows its memory": "dd if=/dev/zero of=/dev/null bs=1200M count=1",
    "outgrows its temporary folder": f"dd if=/dev/zero of=/tmp/big bs=1M count={DISK_MIB}",
    "may have devices or programs of root in its temporary folder": (
        "! grep -q '^[^ ]* /tmp [^ ]* [^ ]*nosuid,nodev' /proc/mounts"
    ),
    "outgrows its disk": f"dd if=/dev/zero of=/data/big bs=1M count={DISK_MIB}",
    "outgrows its disk beyond a hole": f"dd if=/dev/zero of=/data/big bs=1M seek=4000 count={DISK_MIB}",
}

TRIED = "; ".join(f"if ({script}) >/dev/null 2>&1; then echo '{what}'; fi" for what, script in ALONE.items())
"""All of them; what is open is said, a line each."""


def secret(name: str) -> str:
    """Return what stands in a tenant's data."""
    return f"secret-of-{name}"


def plant(host: SharedHost) -> None:
    """Let each tenant have data that nobody else may read."""
    for name in host.pids():
        done = host.within(name, f"echo {secret(name)} > /data/secret; echo {secret(name)} > /log/secret")
        assert done.returncode == 0, done.stderr


def breaches(host: SharedHost) -> list[str]:
    """Return every way out that is open now; ``host`` has what `plant` put there."""
    return _of_all(host, lambda name, names: (*_alone(host, name), *_of_others(host, name, names)))


def network_breaches(host: SharedHost) -> list[str]:
    """Return those of them that the firewall blocks."""
    return _of_all(host, lambda name, names: tuple(_reached(host, name, names)))


def unenforced() -> list[str]:
    """Return the rules that nothing tries: Linux forwards no link-local address (RFC 4291, 2.5.6)."""
    return [line.strip() for line in firewall.rules({2001: 10**9}).splitlines() if "fe80::" in line]


def _of_all(host: SharedHost, look: Callable[[str, list[str]], Iterable[str]]) -> list[str]:
    names = sorted(host.pids())
    with ThreadPoolExecutor(len(names)) as pool:
        found = pool.map(lambda name: [f"{name} {what}" for what in look(name, names)], names)
        return [one for many in found for one in many]


def _alone(host: SharedHost, name: str) -> Iterator[str]:
    yield from host.within(name, f"{TRIED}; rm -f /tmp/big /data/big").stdout.splitlines()
    group = host.inspected()[name]["HostConfig"]
    if group["PidsLimit"] != MAX_PIDS:
        yield "has processes without end"


def _of_others(host: SharedHost, name: str, names: list[str]) -> Iterator[str]:
    yield from _reached(host, name, names)
    others = [one for one in names if one != name]
    user = host.inspected()[name]["Config"]["User"].split(":")[0]
    folders = "/data /log /tmp /run /dev/shm /etc"
    for other in others:
        if host.within(name, f"grep -rqs {secret(other)} {folders}").returncode == 0:
            yield f"reads data of {other}"
        # As if it had got out of the container, but not out of its user.
        for path in host.place.volume_path(other).glob("*/secret"):
            if _readable_by(user, path):
                yield f"reads {path.parent.name} of {other} on the host"
        if host.within(name, f"kill -0 {host.pids()[other]}").returncode == 0:
            yield f"signals {other}"
    if host.within(name, f"grep -qs {secret(name)} /data/secret").returncode:
        yield "does not read its own data"


def _reached(host: SharedHost, name: str, names: list[str]) -> Iterator[str]:
    gateway = host.gateway(name)
    inspected = host.inspected()
    targets = [(real.METADATA, 80), (ADDRESS, SERVICE), (gateway, SERVICE)]
    for other in names:
        if other != name:
            [bound] = {one["HostPort"] for one in inspected[other]["HostConfig"]["PortBindings"]["8080/tcp"]}
            targets += [(host.address(other), 8080), (ADDRESS, int(bound)), (gateway, int(bound))]
    tries = "".join(
        f"(timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}' && echo {address}:{port}) & "
        for address, port in targets
    )
    said = host.within(name, f"{{ {tries} wait; }} 2>/dev/null").stdout
    yield from (f"reaches {one}" for one in said.split())


def _readable_by(user: str, path: Path) -> bool:
    argv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "cat", str(path)]
    return subprocess.run(argv, capture_output=True).returncode == 0
