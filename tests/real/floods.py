"""What a tenant may do to slow its neighbours down, and what is left to a neighbour that works meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from typing import Final

from tests.real.lending import Lending, lending
from tests.real.tenants import SharedHost, until
from userdata.agent.tenants.host.container import name_of

_WHILE: Final = "while test -e /data/greedy; do"
FLOODS: Final = {
    "forks": f"for n in 1 2 3 4; do ({_WHILE} (:) & (:) & wait; done) & done; wait",
    "floods its log": (
        f"{_WHILE} dd if=/dev/zero bs=64k count=64 2>/dev/null | busybox tr '\\0' x | busybox fold -w 1000"
        " > /proc/1/fd/1; done"
    ),
    "spins in a hundred processes": (
        f"n=0; while test $n -lt 100; do ({_WHILE} :; done) & n=$((n + 1)); done; wait"
    ),
    "sleeps just in time": (
        f"busybox mkfifo /tmp/pipe; exec 9<>/tmp/pipe; for n in 1 2 3 4; do ({_WHILE} i=0;"
        " while test $i -lt 300; do i=$((i + 1)); done; read -t 0.001 -u 9; done) & done; wait;"
        " rm /tmp/pipe"
    ),
    "fills its memory with files": (
        f"{_WHILE} dd if=/dev/zero of=/dev/shm/f bs=1M count=400; cat /dev/shm/f > /dev/null; rm /dev/shm/f;"
        " done 2>/dev/null"
    ),
    "floods its disk": f"{_WHILE} dd if=/dev/zero of=/data/f bs=1M count=16 conv=fsync; done 2>/dev/null",
    "makes files without end": (
        f"mkdir -p /data/many; {_WHILE} n=0; while test $n -lt 2000; do : > /data/many/$((n += 1)); done;"
        " rm -rf /data/many/*; done 2>/dev/null; rm -rf /data/many"
    ),
    "opens connections by the hundred": (
        f"{_WHILE} for n in 1 2 3 4; do (for m in {{1..100}}; do exec {{fd}}<>/dev/tcp/127.0.0.1/8080; done)"
        " & done; wait; done 2>/dev/null"
    ),
    "runs out of memory again and again": (
        f"for n in 1 2; do ({_WHILE} dd if=/dev/zero of=/dev/null bs=1200M count=1; done) & done 2>/dev/null;"
        " wait"
    ),
}
"""Scripts that go on until a file is gone."""


@contextlib.contextmanager
def flooding(host: SharedHost, tenants: Lending, name: str, flood: str) -> Iterator[None]:
    """Let a tenant flood."""
    mark = host.place.volume_path(name) / "data" / "greedy"
    mark.touch()
    before = tenants.spent(name)
    argv = ["docker", "exec", "--detach", name_of(name), "bash", "-c", FLOODS[flood]]
    subprocess.run(argv, check=True, capture_output=True)
    try:
        until(lambda: tenants.spent(name) > before + 0.2, f"{name} {flood}")
        yield
    finally:
        mark.unlink()
        time.sleep(0.3)


def neighbour_shares(host: SharedHost, floods: Iterable[str], seconds: float) -> dict[str, float]:
    """Return by flood of bo what ada, who wants all CPUs, gets of its part: half of what both get."""
    shares = {}
    with lending(host) as tenants:
        tenants.wake("ada")
        for flood in floods:
            with flooding(host, tenants, "bo", flood), tenants.undisturbed():
                ada, bo = tenants.spent("ada"), tenants.spent("bo")
                time.sleep(seconds)
                ada, bo = tenants.spent("ada") - ada, tenants.spent("bo") - bo
                shares[flood] = ada / ((ada + bo) / 2)
    return shares


def give_back_seconds(host: SharedHost, floods: Iterable[str]) -> dict[str, float]:
    """Return by flood of bo, who has all CPUs, the seconds until a waking ada has nine tenths of its part."""
    taken = {}
    with lending(host) as tenants:
        for flood in floods:
            with flooding(host, tenants, "bo", flood):
                taken[flood] = tenants.give_back_seconds("ada", "bo")
                tenants.rest("ada")
    return taken
