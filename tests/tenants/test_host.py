"""What a shared host reads from its machine and from S3: files in the kernel's format, S3 by moto."""

# ruff: noqa: N802, N815 - the names are pynvml's
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import boto3
import pytest

from tests import models
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.tenants.docker_double import DockerDouble
from tests.tenants.hosts import host, tenant
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tenants import codec, mig, usage, weights
from userdata.agent.tenants.host import docker, firewall, meter, shape
from userdata.agent.tenants.host.limiter import CpuLimiter, LendingTenant
from userdata.agent.tenants.host.listing import TenantListReader
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.model import HostShape, MigInstance, NumaNode, Slice
from userdata.agent.tenants.usage import CpuAccount, CpuUsage

GIB = 2**30


class MigNvml(FakeNvml):
    """Two GPUs that can be divided, one on each node; their handles are their indexes."""

    PROFILES: Final = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.10gb")
    c_nvmlGpuInstance_t = ctypes.py_object

    def __init__(self) -> None:
        super().__init__([FakeGpu("GPU-0"), FakeGpu("GPU-1")])
        self.parts: dict[tuple[int, int], int] = {}
        """Memory slices of each GPU instance, by GPU and first slice."""
        self.names: dict[tuple[int, int], str] = {}
        self.bare: set[tuple[int, int]] = set()
        """Those without a compute instance, which are no MIG devices."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{gpu + 1}0:1C.0".encode())

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=40 * GIB)

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "NVIDIA A100-SXM4-40GB"

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: int, number: int) -> tuple[int, int]:
        mine = sorted(start for one, start in self.parts.keys() - self.bare if one == gpu)
        if number >= len(mine):
            raise self.NVMLError_NotFound
        return gpu, mine[number]

    def nvmlDeviceGetGpuInstanceId(self, part: tuple[int, int]) -> int:
        return part[1] + 100

    def nvmlDeviceGetGpuInstanceProfileInfo(self, gpu: int, profile: int) -> Any:
        if profile >= len(self.PROFILES):
            raise self.NVMLError_NotSupported
        slices = int(self.PROFILES[profile][0])
        return SimpleNamespace(id=profile + 10, sliceCount=slices, instanceCount=7 // slices)

    def nvmlDeviceGetGpuInstances(self, gpu: int, profile: int, instances: Any, count: Any) -> None:
        name = self.PROFILES[profile - 10]
        mine = [part for part in sorted(self.parts) if part[0] == gpu and self.names[part] == name]
        instances[: len(mine)] = mine
        count._obj.value = len(mine)

    def nvmlGpuInstanceGetInfo(self, part: tuple[int, int]) -> Any:
        placement = SimpleNamespace(start=part[1], size=self.parts[part])
        return SimpleNamespace(id=part[1] + 100, placement=placement)

    def nvmlDeviceGetUUID(self, part: int | tuple[int, int]) -> str:
        return f"GPU-{part}" if isinstance(part, int) else f"MIG-{part[0]}-{part[1]}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# --- CPU accounts ---


def test_borrowed_cpu_seconds_are_lent_in_proportion_to_idle_ones() -> None:
    accounts = usage.compute_accounts(
        {"a": CpuUsage(2, 300.0), "b": CpuUsage(2, 60.0), "c": CpuUsage(4, 120.0)}, 60.0
    )
    assert accounts["a"] == CpuAccount(300.0, 180.0, 0.0)
    assert accounts["b"].borrowed == accounts["c"].borrowed == 0.0
    assert accounts["b"].lent == pytest.approx(180.0 * 60 / 180)
    assert accounts["c"].lent == pytest.approx(180.0 * 120 / 180)


def test_pinned_cpus_are_not_lent() -> None:
    accounts = usage.compute_accounts(
        {"a": CpuUsage(2, 240.0), "b": CpuUsage(4, 60.0), "c": CpuUsage(4, 60.0, is_lender=False)}, 60.0
    )
    assert (accounts["a"].borrowed, accounts["b"].lent, accounts["c"].lent) == (120.0, 120.0, 0.0)


def test_a_capped_tenant_lends_and_does_not_borrow() -> None:
    # Above its cap by 0.3 s: the counter and the clock are not read at the same moment.
    capped = CpuUsage(2, 120.3, is_borrower=False)
    accounts = usage.compute_accounts({"a": CpuUsage(1, 100.0), "b": capped}, 60.0)
    assert (accounts["b"].used, accounts["b"].borrowed, accounts["b"].lent) == (120.3, 0.0, 0.0)
    idle = CpuUsage(2, 20.0, is_borrower=False)
    accounts = usage.compute_accounts({"a": CpuUsage(1, 100.0), "b": idle}, 60.0)
    assert (accounts["a"].borrowed, accounts["b"].lent) == (40.0, 40.0)


def test_a_tenant_does_not_lend_more_than_it_left_idle() -> None:
    # More CPUs than are allocated: no tenant lends unallocated ones.
    accounts = usage.compute_accounts({"a": CpuUsage(1, 600.0), "b": CpuUsage(1, 30.0)}, 60.0)
    assert accounts["a"].borrowed == 540.0
    assert accounts["b"].lent == 30.0


# --- control groups ---


def test_counters_of_both_versions_of_control_groups(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "0::/system.slice/docker-ab.scope\n")
    place = tmp_path / "cg/system.slice/docker-ab.scope"
    write(place / "cpu.stat", "usage_usec 1500000\nuser_usec 1\nthrottled_usec 250000\n")
    write(place / "memory.current", "4096\n")
    assert meter.read(7, tmp_path / "proc", tmp_path / "cg") == meter.Counters(1.5, 4096, 0.25)
    write(tmp_path / "proc/8/cgroup", "5:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/\n")
    write(tmp_path / "cg/cpuacct/docker/ab/cpuacct.usage", "2500000000\n")
    write(tmp_path / "cg/cpu/docker/ab/cpu.stat", "nr_periods 9\nnr_throttled 1\nthrottled_time 750000000\n")
    write(tmp_path / "cg/memory/docker/ab/memory.usage_in_bytes", "8192\n")
    assert meter.read(8, tmp_path / "proc", tmp_path / "cg") == meter.Counters(2.5, 8192, 0.75)
    assert meter.read(9, tmp_path / "proc", tmp_path / "cg") is None


def test_shares_follow_the_curve_of_the_runtime_that_is_here(tmp_path: Path) -> None:
    write(tmp_path / "cg/cgroup.controllers", "cpu memory\n")
    shares = WeightCurve(tmp_path / "cg", tmp_path / "proc")
    asked = shares.shares_for(400)
    assert weights.weight_of(asked) == 400
    write(tmp_path / "proc/7/cgroup", "0::/docker/ab\n")
    write(tmp_path / "cg/docker/ab/cpu.weight", "400\n")
    assert not shares.calibrate(7, asked)
    write(tmp_path / "cg/docker/ab/cpu.weight", f"{weights.old_weight_of(asked)}\n")
    assert shares.calibrate(7, asked)
    assert not shares.calibrate(7, asked)
    assert weights.old_weight_of(shares.shares_for(400)) == 400


def test_shares_of_version_one_are_weights_themselves(tmp_path: Path) -> None:
    shares = WeightCurve(tmp_path)
    assert [shares.shares_for(weight) for weight in (40, 400)] == [40, 400]


# --- the host's shape ---


def test_cores_nodes_gpus_and_memory_as_the_kernel_shows_them(tmp_path: Path) -> None:
    cpus = tmp_path / "devices/system/cpu"
    write(cpus / "online", "0-6\n")
    for cpu in range(7):
        write(cpus / f"cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")
        (cpus / f"cpu{cpu}" / f"node{cpu % 4 // 2}").mkdir()
    for gpu in (0, 1):
        write(tmp_path / f"bus/pci/devices/0000:{gpu + 1}0:1c.0/numa_node", f"{1 - gpu}\n")
    write(tmp_path / "meminfo", "MemTotal:       1174405120 kB\nMemFree: 1 kB\n")
    seen = shape.read_shape(MigNvml(), tmp_path, tmp_path / "meminfo")
    assert seen.nodes == (NumaNode(((0, 4), (1, 5)), (1,)), NumaNode(((2, 6), (3,)), (0,)))
    assert (seen.memory_gib, seen.gpus) == (1120, (0, 1))
    assert "1g.5gb" in {one.name for one in seen.mig}
    assert isinstance(shape.read_shape(None), HostShape)  # this very machine
    with pytest.raises(AgentError, match="cannot read the host's CPUs and memory"):
        shape.read_shape(None, tmp_path / "nowhere")


# --- parts of GPUs ---


class Driver(DockerDouble):
    """``nvidia-smi`` of the fake driver, which refuses overlapping instances and GPUs that are not ready."""

    SIZES: Final = {one.name: one.size for one in mig.profiles("A100", 40)}

    def __init__(self, nvml: MigNvml, *, creates: bool = True) -> None:
        super().__init__()
        self.nvml, self.creates = nvml, creates
        self.partitioned: set[int] = set()
        self.is_in_use = False  # by another client

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        match list(argv):
            case ["nvidia-smi", "-i", gpu, "--query-gpu=mig.mode.current", _]:
                return "Enabled\n" if int(gpu) in self.partitioned else "Disabled\n"
            case ["nvidia-smi", "-i", _, "-mig", _] if self.is_in_use:
                return "Warning: MIG mode is in pending state: In use by another client\nAll done.\n"
            case ["nvidia-smi", "-i", gpu, "-mig", "1"]:
                self.partitioned.add(int(gpu))
            case ["nvidia-smi", "-i", gpu, "-mig", "0"]:
                assert not [one for one in self.nvml.parts if one[0] == int(gpu)], "instances exist"
                self.partitioned.remove(int(gpu))
            case ["nvidia-smi", "mig", "-i", gpu, "-cgi", requested, "-C"]:
                self._create(int(gpu), *requested.split(":"))
            case ["nvidia-smi", "mig", "-dci", "-i", gpu, "-gi", id_]:
                assert (int(gpu), int(id_) - 100) not in self.nvml.bare
                self.nvml.bare.add((int(gpu), int(id_) - 100))
            case ["nvidia-smi", "mig", "-dgi", "-i", gpu, "-gi", id_]:
                if self.is_in_use:
                    raise AgentError("nvidia-smi: exit 19: In use by another client")
                self.nvml.bare.remove((int(gpu), int(id_) - 100))
                del self.nvml.parts[int(gpu), int(id_) - 100]
        return ""

    def _create(self, gpu: int, profile: str, start: str) -> None:
        first, size = int(start), self.SIZES[profile]
        if gpu not in self.partitioned:
            raise AgentError("nvidia-smi: MIG mode is disabled")
        for (other, begin), width in self.nvml.parts.items():
            if other == gpu and begin < first + size and first < begin + width:
                raise AgentError("nvidia-smi: Insufficient Resources")
        if self.creates:
            self.nvml.parts[gpu, first], self.nvml.names[gpu, first] = size, profile


def mig_slice(profile: str, start: int, gpu: int = 1) -> Slice:
    return Slice((1,), 40, GIB, mig=MigInstance(gpu, profile, start))


MACHINE = host(nodes=1, gpus=2)


def test_a_part_is_created_once_and_known_by_its_uuid() -> None:
    nvml = MigNvml()
    driver, part = Driver(nvml), mig_slice("3g.20gb", 4)
    gpus = GpuParts(driver, nvml)
    assert gpus.names(part) == ("MIG 3g.20gb at 1:4",)
    assert gpus.prepare(part, MACHINE) == ["MIG-1-4"]
    assert driver.ran[1] == ["nvidia-smi", "-i", "1", "-mig", "1"]
    assert driver.ran[4][:3] == ["nvidia-ctk", "cdi", "generate"]
    driver.ran.clear()
    assert gpus.prepare(part, MACHINE) == ["MIG-1-4"]
    assert gpus.names(part) == ("MIG 3g.20gb at 1:4",)
    assert not driver.ran
    with pytest.raises(AgentError, match="not listed after its creation"):
        GpuParts(Driver(nvml, creates=False), nvml).prepare(mig_slice("3g.20gb", 0, 0), MACHINE)


def test_a_part_replaces_those_that_it_overlaps_and_no_others() -> None:
    nvml = MigNvml()
    driver = Driver(nvml)
    gpus = GpuParts(driver, nvml)
    for start in (0, 4, 6):
        gpus.prepare(mig_slice("2g.10gb" if start < 6 else "1g.10gb", start), MACHINE)
    assert gpus.prepare(mig_slice("3g.20gb", 4), MACHINE) == ["MIG-1-4"]
    assert nvml.parts == {(1, 0): 2, (1, 4): 4}
    # Another profile that begins where the old one did.
    assert gpus.prepare(mig_slice("1g.5gb", 4), MACHINE) == ["MIG-1-4"]
    assert nvml.parts == {(1, 0): 2, (1, 4): 1}


@pytest.mark.parametrize(("before", "after"), [("3g.20gb", "4g.20gb"), ("1g.10gb", "2g.10gb")])
def test_a_profile_with_the_same_memory_slices_is_another_part(before: str, after: str) -> None:
    nvml = MigNvml()
    gpus = GpuParts(Driver(nvml), nvml)
    for profile in (before, after, before):
        assert gpus.prepare(mig_slice(profile, 0), MACHINE) == ["MIG-1-0"]
        assert nvml.names[1, 0] == profile


WHOLE = Slice((1,), 40, GIB, gpus=(1,))


@pytest.mark.parametrize("part", [mig_slice("3g.20gb", 4), mig_slice("2g.10gb", 4), WHOLE])
def test_a_destruction_that_did_not_end_is_continued(part: Slice) -> None:
    nvml = MigNvml()
    driver = Driver(nvml)
    gpus = GpuParts(driver, nvml)
    gpus.prepare(mig_slice("1g.10gb", 4), MACHINE)
    driver.is_in_use = True
    with pytest.raises(AgentError, match="In use by another client"):
        gpus.prepare(part, MACHINE)
    driver.is_in_use = False
    assert gpus.prepare(part, MACHINE) == ["MIG-1-4" if part.mig else "GPU-1"]


@pytest.mark.parametrize(("part", "state"), [(mig_slice("2g.10gb", 0), "enabled"), (WHOLE, "disabled")])
def test_a_mode_that_is_only_pending_is_an_error(part: Slice, state: str) -> None:
    driver = Driver(nvml := MigNvml())
    driver.partitioned, driver.is_in_use = {1} if state == "disabled" else set(), True
    with pytest.raises(AgentError, match=f"MIG mode of GPU 1 is not {state} yet; stop what uses"):
        GpuParts(driver, nvml).prepare(part, MACHINE)


def test_a_partitioned_gpu_becomes_whole_again() -> None:
    nvml = MigNvml()
    driver = Driver(nvml)
    gpus = GpuParts(driver, nvml)
    gpus.prepare(mig_slice("2g.10gb", 0), MACHINE)
    assert gpus.prepare(Slice((1,), 40, GIB, gpus=(0, 1)), MACHINE) == ["GPU-0", "GPU-1"]
    assert (driver.partitioned, nvml.parts) == (set(), {})


def test_a_whole_gpu_is_known_by_its_uuid() -> None:
    part = Slice((1,), 40, GIB, gpus=(0, 1))
    assert GpuParts(DockerDouble(), MigNvml()).names(part) == ("GPU-0", "GPU-1")
    assert GpuParts(DockerDouble(), None).names(Slice((1,), 40, GIB)) == ()
    with pytest.raises(AgentError, match="GPU 0: this machine has no NVIDIA driver"):
        GpuParts(DockerDouble(), None).names(part)


# --- the list ---


@pytest.fixture
def bucket() -> Iterator[Any]:
    with models.moto():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="agents")
        yield client


def test_a_changed_list_is_fetched_and_cached_for_the_next_process(bucket: Any, tmp_path: Path) -> None:
    cache = tmp_path / "run" / "tenants.json"
    listing = TenantListReader(bucket, "agents", "shared", cache)
    assert listing.cached() is None
    with pytest.raises(AgentError, match=r"s3://agents/hosts/shared/tenants\.json: NoSuchKey"):
        listing.fetch()
    first = (tenant("ada"), tenant("bo", host_port=8001, container_port=80))
    bucket.put_object(Bucket="agents", Key=codec.key_of("shared"), Body=codec.encode(first))
    assert listing.fetch() == first
    assert listing.fetch() is None
    bucket.put_object(Bucket="agents", Key=codec.key_of("shared"), Body=codec.encode(first[:1]))
    assert listing.fetch() == first[:1]
    assert TenantListReader(bucket, "agents", "shared", cache).cached() == first[:1]


def test_a_list_that_cannot_be_decoded_or_cached_raises_each_time(bucket: Any, tmp_path: Path) -> None:
    listing = TenantListReader(bucket, "agents", "shared", cache := tmp_path / "tenants.json")
    bucket.put_object(Bucket="agents", Key=codec.key_of("shared"), Body='{"tenants": [{"name": "x"}]}')
    for _ in range(2):
        with pytest.raises(ConfigError):
            listing.fetch()
    write(cache, '{"tenants": [], "more": 1}')  # the copy of another release
    assert listing.cached() is None
    bucket.put_object(Bucket="agents", Key=codec.key_of("shared"), Body=codec.encode([tenant("ada")]))
    cache.unlink()
    cache.mkdir()
    with pytest.raises(OSError, match=r"tenants\.json"):
        listing.fetch()
    cache.rmdir()
    assert [listing.fetch(), listing.fetch()] == [(tenant("ada"),), None]


# --- docker ---


def test_a_cpuset_is_read_as_the_kernel_writes_it() -> None:
    assert docker.cpus("0-2,48,50-51\n") == (0, 1, 2, 48, 50, 51)
    assert docker.cpus("") == ()
    assert docker.cpus(Slice((0, 1, 2, 48), 40, GIB).cpuset) == (0, 1, 2, 48)


def test_no_tenant_starts_without_a_firewall() -> None:
    class Bare(DockerDouble):
        def run(
            self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None
        ) -> str:
            if argv[0] == "nft":
                raise AgentError("nft: No such file or directory")
            return super().run(argv, timeout, stdin, environment)

    with pytest.raises(AgentError, match=r"none is started: nft.*; use a machine with nftables"):
        firewall.apply_rules(Bare(), {2001: 10**9})


ADA, BO, CY = LendingTenant(7, 1), LendingTenant(8, 1), LendingTenant(9, 1, can_borrow=False)
SPENT = {7: 0.0, 8: 0.0, 9: 0.0}
QUOTA = {1: "cpu/docker/{}/cpu.cfs_quota_us", 2: "docker/{}/cpu.max"}
LIMITED, FREE = {1: "100000", 2: "100000 100000"}, {1: "-1", 2: "max 100000"}


class Kernel:
    """A machine of two shared CPUs, and one that the system has."""

    def __init__(self, folder: Path, version: int) -> None:
        self.proc, self.cgroups, self.version = folder / "proc", folder / "cgroup", version
        self.spent, self.idle = dict(SPENT), 0.0
        for pid in SPENT:
            group = f"1:cpu:/docker/{pid}\n2:cpuacct:/docker/{pid}\n3:memory:/docker/{pid}\n"
            write(self.proc / f"{pid}/cgroup", group if version == 1 else f"0::/docker/{pid}\n")
            self.quota(pid, "150000")
        self.passes({}, 0.0)

    def quota(self, pid: int, text: str | None = None) -> str:
        path = self.quota_path(pid)
        if text is not None:
            write(path, text)
        return path.read_text()

    def quota_path(self, pid: int) -> Path:
        return self.cgroups / QUOTA[self.version].format(pid)

    def passes(self, used: dict[int, float], idle: float) -> None:
        """Let CPU seconds pass."""
        self.idle += idle
        ticks = round(self.idle * 100)
        lines = ["cpu  0 0 0 0 0 0", f"cpu0 0 0 0 {ticks} 0 0", "cpu1 0 0 0 0 0 0", "cpu2 0 0 0 9999999 0 0"]
        write(self.proc / "stat", "\n".join([*lines, "ctxt 1"]))
        for pid in SPENT:
            self.spent[pid] += used.get(pid, 0.0)
            self._count(pid, self.spent[pid])

    def _count(self, pid: int, seconds: float) -> None:
        if self.version == 1:
            write(self.cgroups / f"cpuacct/docker/{pid}/cpuacct.usage", str(int(seconds * 1e9)))
            write(self.cgroups / f"cpu/docker/{pid}/cpu.stat", "throttled_time 0")
            write(self.cgroups / f"memory/docker/{pid}/memory.usage_in_bytes", "1")
        else:
            write(
                self.cgroups / f"docker/{pid}/cpu.stat", f"usage_usec {int(seconds * 1e6)}\nthrottled_usec 0"
            )
            write(self.cgroups / f"docker/{pid}/memory.current", "1")


@pytest.mark.parametrize("version", [1, 2])
def test_a_tenant_that_takes_from_a_neighbour_is_limited_until_it_needs_no_more(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, clock = Kernel(tmp_path, version), FakeClock()
    limiter = CpuLimiter(clock, kernel.proc, kernel.cgroups)
    limiter.watch({"ada": ADA, "bo": BO, "cy": CY}, (0, 1))

    def tick(used: dict[int, float], idle: float = 0.0) -> None:
        clock.advance(0.25)
        kernel.passes({pid: cpus / 4 for pid, cpus in used.items()}, idle / 4)
        limiter.tick()

    tick({})
    # A limit of a process before this one has ended; a cap of Docker's stays.
    assert [kernel.quota(pid) for pid in SPENT] == [FREE[version], FREE[version], "150000"]
    tick({7: 0.66, 8: 1.34})
    assert [kernel.quota(7), kernel.quota(8)] == [FREE[version], LIMITED[version]]
    assert "tenant limited" in caplog.text
    kernel.quota(8, FREE[version])  # by `docker update`
    tick({7: 1.0, 8: 1.0})
    assert kernel.quota(8) == LIMITED[version]
    os.utime(kernel.quota_path(8), (0, 0))
    tick({7: 1.0, 8: 1.0})
    assert kernel.quota_path(8).stat().st_mtime == 0  # a write would grant the quota once more
    tick({8: 1.0}, idle=1.0)
    assert kernel.quota(8) == FREE[version]
    assert kernel.quota(9) == "150000"


def test_a_container_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    kernel, clock = Kernel(tmp_path, 2), FakeClock()
    limiter = CpuLimiter(clock, kernel.proc, kernel.cgroups)
    limiter.watch({"ada": ADA, "gone": LendingTenant(77, 1)}, (0, 1))
    limiter.tick()
    clock.advance(0.25)
    limiter.tick()
    assert kernel.quota(7) == FREE[2]


def test_without_the_kernels_files_nothing_is_watched(tmp_path: Path) -> None:
    CpuLimiter(FakeClock(), tmp_path, tmp_path).run()
