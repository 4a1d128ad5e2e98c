"""A shared host of real containers on this machine: its landlord, and three tenants."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contracts.registry.tenant_wait import TenantWait
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.real import containers as real
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.metrics import emf
from userdata.agent.tenants.host import meter
from userdata.agent.tenants.host.container import TenantPaths, name_of
from userdata.agent.tenants.host.limiter import CpuLimiter
from userdata.agent.tenants.host.meter import Counters, UsageMeter
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shape import disk_of
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.host.supervisor import TenantSupervisor
from userdata.agent.tenants.host.tenant_state import SupervisorDependencies
from userdata.agent.tenants.images.secret_values import TenantSecrets
from userdata.agent.tenants.images.store import ImageStore
from userdata.agent.tenants.model import HostShape, NumaNode, Tenant
from userdata.agent.tenants.throughput import Bandwidth
from userdata.agent.work.images import PulledImages

PROGRAMS = ("nft", "mkfs.ext4", "setpriv", "busybox")
"""What a shared host needs beside Docker."""
ADDRESS = "10.77.0.1"
"""The host's own, private address in its network namespace."""
SERVICE = 9000
"""Where a service of the host's listens, on all its addresses."""
DISK_MIB = 40

# Busy while /data/go exists; ends at SIGTERM, and writes that.
BODY = """
trap 'echo told > /data/told; exit 0' TERM
busybox httpd -p 8080 -h /data
while :; do
  test -e /data/go || { sleep 0.05; continue; }
  (while test -e /data/go; do :; done) & (while test -e /data/go; do :; done) & wait $!
done
"""


@dataclass(frozen=True)
class SmallHost(HostShape):
    """This machine's CPUs, all of them for tenants, who are promised more than there are."""

    @property
    def cpus(self) -> int:
        return 16

    @property
    def reserved_cores(self) -> tuple[tuple[int, ...], ...]:
        return ()


@dataclass(frozen=True)
class BigHost(SmallHost):
    """The memory and GPUs of p4d.24xlarge (EC2 user guide), and as many CPUs, on those of this machine."""

    @property
    def cpus(self) -> int:
        return 96


def shape() -> HostShape:
    cpus = sorted(os.sched_getaffinity(0))
    return SmallHost((NumaNode(tuple((cpu,) for cpu in cpus)),), 256)


def tenant(name: str, uid: int, **changes: Any) -> Tenant:
    made = Tenant(
        name=name,
        uid=uid,
        cpus=1,
        memory_gib=1,
        image=real.IMAGE,
        host_port=uid + 6000,
        container_port=8080,
        command=("sh", "-c", BODY),
    )
    return replace(made, **changes)


def big_shape() -> HostShape:
    [node] = shape().nodes
    nodes = (NumaNode(node.cores, (0, 1, 2, 3)), NumaNode((), (4, 5, 6, 7)))
    return BigHost(nodes, 1152, tuple(range(8)))


THREE = (tenant("ada", 2001), tenant("bo", 2002), tenant("cy", 2003))


class Disks:
    """A file system of its own for each tenant, in a file, as small as it takes to be full soon."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.here: set[str] = set()

    def attach(self, tenant: str, data_gib: int) -> None:
        disk, home = self.place / f"{tenant}.disk", self.place / "homes" / tenant
        if tenant in self.here:
            return
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(DISK_MIB * 2**20)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk)], check=True)
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-o", "loop,nodev,nosuid", str(disk), str(home)], check=True)
        self.here.add(tenant)

    def release(self, tenant: str) -> None:
        subprocess.run(["umount", str(self.place / "homes" / tenant)], check=True)
        self.here.remove(tenant)

    def tenants(self) -> frozenset[str]:
        return frozenset(self.here)

    def renew_leases(self) -> frozenset[str]:
        return frozenset()


class Heartbeats:
    """What the registry would hear of the host."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.waits: dict[str, str] = {}

    def send(
        self,
        slots: Collection[int],
        *,
        waiting: bool = False,
        draining: bool = False,
        tenant_waits: tuple[TenantWait, ...] | None = None,
        **more: Any,
    ) -> frozenset[int]:
        self.waits = {wait.tenant: wait.reason for wait in tenant_waits or ()}
        state = "waiting" if waiting else "draining" if draining else "ready"
        if not self.said or self.said[-1] != state:
            self.said.append(state)
        return frozenset()

    def deregister(self, slot: int) -> None:
        self.said.append("left")

    def flush(self) -> None:
        """Everything is written at once."""


class SharedHost:
    """The landlord in a thread, as its unit runs it, and questions about what it keeps."""

    def __init__(self, host: Host, place: Path, inside: Sequence[str]) -> None:
        self.host = host
        self.inside = list(inside)
        self.place = TenantPaths(ADDRESS, place / "run", place / "homes", place / "cdi")
        self.place.run.mkdir()
        self.disks = Disks(place)
        self.tenants: tuple[Tenant, ...] = THREE
        self.fetch: Callable[[], tuple[Tenant, ...] | None] = lambda: self.tenants
        self.secrets: dict[str, str] = {}
        self.free_bytes: Callable[[str], int] = lambda directory: 2**40
        self.list_interval_seconds = 0.5
        self.poll_interval_seconds = 0.5
        self.bandwidth = Bandwidth(10**11, 10**11)
        self.nvml: FakeNvml | None = None
        self.shape: Callable[[], HostShape] = shape
        self.heartbeats = Heartbeats()
        self.metrics: dict[str, list[emf.Metric]] = {}
        self._made: TenantSupervisor | None = None
        self._thread = threading.Thread()

    def begin(self) -> None:
        """Start the landlord, or another one after `stop`."""
        self._limiter = CpuLimiter(SystemClock())
        threading.Thread(target=self._limiter.run, daemon=True).start()
        secrets = TenantSecrets(self._secret, str, self.place.run)
        images = PulledImages(self.host, SystemClock(), self.place.run / "images.json")
        means = SupervisorDependencies(
            host=self.host,
            clock=SystemClock(),
            run_in_background=lambda work: threading.Thread(target=work, daemon=True).start(),
            heartbeats=self.heartbeats,
            volumes=self.disks,
            meter=UsageMeter(self.metrics.__setitem__, lambda: None),
            limiter=self._limiter,
            weight_curve=WeightCurve(),
            fetch_tenants=lambda: self.fetch(),
            cached_tenants=lambda: None,
            read_shape=self.shape,
            prepare_image=ImageStore(self.host, secrets, images, lambda path: self.free_bytes(path)).prepare,
            secret_variables=secrets.variables,
            outdated=lambda: (),  # this machine's programs are older
            gpus=GpuParts(self.host, self.nvml),
            bandwidth=self.bandwidth,
            disk_of=disk_of,
            list_interval_seconds=self.list_interval_seconds,
            poll_interval_seconds=self.poll_interval_seconds,
        )
        self._made = TenantSupervisor(means, self.place)
        self._thread = threading.Thread(target=self._made.run, daemon=True)
        self._thread.start()

    def _secret(self, name: str) -> str:
        try:
            return self.secrets[name]
        except KeyError:
            raise AgentError(f"secret {name}: ResourceNotFoundException") from None

    def stop(self) -> None:
        """Tell it to stop, as systemd does, and wait for it."""
        assert self._made is not None
        self._made.stop()
        self._thread.join(120)
        self._limiter.watch({}, ())  # as its process ends
        assert not self._thread.is_alive()

    def pids(self) -> dict[str, int]:
        """Return the first process of each tenant's container that runs."""
        return {
            name: one["State"]["Pid"] for name, one in self.inspected().items() if one["State"]["Running"]
        }

    def users(self) -> dict[str, int]:
        """Return the user of each tenant's container that runs."""
        return {
            name: int(one["Config"]["User"].split(":")[0])
            for name, one in self.inspected().items()
            if one["State"]["Running"]
        }

    def inspected(self) -> dict[str, Any]:
        ids = self.docker("ps", "--all", "--quiet", "--filter", "label=gpu-spot.tenant").split()
        said = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True).stdout
        found = json.loads(said) if ids else []  # without those that went meanwhile
        return {one["Config"]["Labels"]["gpu-spot.tenant"]: one for one in found}

    def docker(self, *words: str) -> str:
        return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout

    def within(self, name: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script as the tenant, in its container."""
        argv = ["docker", "exec", name_of(name), "bash", "-c", script]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    def answers(self, address: str, port: int, user: int = 0) -> bool:
        """Tell whether somebody answers the host itself, as ``user``."""
        user_command = ["setpriv", "--reuid", str(user), "--clear-groups"] if user else []
        argv = [*self.inside, *user_command, "bash", "-c", _asks(address, port)]
        return subprocess.run(argv, capture_output=True).returncode == 0

    def reaches(self, name: str, address: str, port: int) -> bool:
        """Tell whether somebody answers a tenant."""
        return self.within(name, _asks(address, port)).returncode == 0

    def address(self, name: str) -> str:
        [network] = self.inspected()[name]["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def gateway(self, name: str) -> str:
        [network] = self.inspected()[name]["NetworkSettings"]["Networks"].values()
        return str(network["Gateway"])

    def spent(self, names: Collection[str]) -> dict[str, float]:
        """Return the CPU seconds of tenants by their control groups."""
        found: Mapping[str, Counters | None] = {
            n: meter.read(p) for n, p in self.pids().items() if n in names
        }
        return {name: one.seconds for name, one in found.items() if one is not None}


def _asks(address: str, port: int) -> str:
    # Whoever refuses or drops the connection has not answered.
    return f"timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'"


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> float:
    """Wait for a condition; return the seconds that it took."""
    started_at = time.monotonic()
    while not condition():
        assert time.monotonic() < started_at + seconds, f"not so in {seconds:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - started_at


OUTSIDE_BYTES = 8_000_000
OUTSIDE_IPV6 = "2001:db8::2"
METADATA_IPV6 = "fd00:ec2::254"
"""Addresses of the machine beyond the host; the second is that of EC2's metadata service (EC2 user guide)."""


@contextlib.contextmanager
def outside(host: SharedHost) -> Iterator[str]:
    """A machine beyond the host's network, at the address that it yields, with a large file to download."""
    web = host.place.run.parent / "outside"
    web.mkdir(exist_ok=True)
    (web / "large").write_bytes(bytes(OUTSIDE_BYTES))
    address = "203.0.113.2"
    up = f"until ip addr add {address}/24 dev out1 2>/dev/null; do sleep 0.1; done; ip link set out1 up"
    for outer in (OUTSIDE_IPV6, METADATA_IPV6):
        up += f"; ip addr add {outer}/64 dev out1 nodad"
    route = "ip route add default via 203.0.113.1; ip -6 route add default via 2001:db8::1"
    serve = f"{up}; {route}; exec busybox httpd -f -p 80 -h {web}"
    server = subprocess.Popen(["unshare", "--net", "sh", "-c", serve])
    try:
        for words in (
            "link add out0 type veth peer name out1",
            f"link set out1 netns {server.pid}",
            "addr add 203.0.113.1/24 dev out0",
            "link set out0 up",
            "addr add 2001:db8::1/64 dev out0 nodad",
            "addr add fd00:ec2::1/64 dev out0 nodad",
        ):
            subprocess.run([*host.inside, "ip", *words.split()], check=True)
        until(lambda: host.answers(address, 80), "the other machine answers")
        yield address
    finally:
        server.kill()
        server.wait()
        subprocess.run([*host.inside, "ip", "link", "delete", "out0"], capture_output=True)


@contextlib.contextmanager
def shared_host(place: Path, tenants: Sequence[Tenant] = THREE, gpus: int = 0) -> Iterator[SharedHost]:
    """A daemon in a network namespace, a double of the metadata service, a service, the three tenants.

    With ``gpus`` the machine has them by a double of NVML and of CDI, and is a `BigHost`.
    """
    real.needed(*PROGRAMS)
    with real.docker(place) as host:
        inside = host.inside
        subprocess.run([*inside, "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
        service = subprocess.Popen([*inside, "busybox", "httpd", "-f", "-p", str(SERVICE), "-h", str(place)])
        made = SharedHost(host, place, inside)
        made.tenants = tuple(tenants)
        if gpus:
            made.nvml, made.shape = FakeNvml([FakeGpu(f"GPU-{number}") for number in range(gpus)]), big_shape
            for number in range(gpus):
                real.gpu_file(place, f"GPU-{number}", number)
        try:
            made.begin()
            until(lambda: len(made.pids()) == 3 and made.heartbeats.said[-1:] == ["ready"], "all are served")
            yield made
        finally:
            made.stop()
            service.kill()
            service.wait()
            for name in made.inspected():
                made.docker("rm", "--force", name_of(name))
            for name in list(made.disks.here):
                made.disks.release(name)
