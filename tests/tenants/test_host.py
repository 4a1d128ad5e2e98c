"""What a shared host reads from its machine and from S3: files in the kernel's format, S3 by moto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import boto3
import pytest

from tests import models
from tests.tenants.docker_double import DockerDouble
from tests.tenants.fake_nvml import GIB, FakeNvml
from tests.tenants.hosts import host, tenant
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tenants import codec, mig, usage, weights
from userdata.agent.tenants.host import docker, firewall, meter, shape
from userdata.agent.tenants.host.listing import TenantListReader
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.model import HostShape, MigInstance, NumaNode, Slice
from userdata.agent.tenants.usage import CpuAccount, CpuUsage


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
    seen = shape.read_shape(FakeNvml(), tmp_path, tmp_path / "meminfo")
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

    def __init__(self, nvml: FakeNvml, *, creates: bool = True) -> None:
        super().__init__()
        self.nvml, self.creates = nvml, creates
        self.partitioned: set[int] = set()

    def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        match list(argv):
            case ["nvidia-smi", "-i", gpu, "--query-gpu=mig.mode.current", _]:
                return "Enabled\n" if int(gpu) in self.partitioned else "Disabled\n"
            case ["nvidia-smi", "-i", gpu, "-mig", "1"]:
                self.partitioned.add(int(gpu))
            case ["nvidia-smi", "-i", gpu, "-mig", "0"]:
                assert not [one for one in self.nvml.parts if one[0] == int(gpu)], "instances exist"
                self.partitioned.remove(int(gpu))
            case ["nvidia-smi", "mig", "-i", gpu, "-cgi", requested, "-C"]:
                self._create(int(gpu), *requested.split(":"))
            case ["nvidia-smi", "mig", "-dgi", "-i", gpu, "-gi", id_]:
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
            self.nvml.parts[gpu, first] = size


def mig_slice(profile: str, start: int, gpu: int = 1) -> Slice:
    return Slice((1,), 40, GIB, mig=MigInstance(gpu, profile, start))


MACHINE = host(nodes=1, gpus=2)


def test_a_part_is_created_once_and_known_by_its_uuid() -> None:
    nvml = FakeNvml()
    driver, part = Driver(nvml), mig_slice("3g.20gb", 4)
    gpus = GpuParts(driver, nvml)
    assert gpus.names(part) == ("MIG 3g.20gb at 1:4",)
    assert gpus.prepare(part, MACHINE) == ["MIG-1-4"]
    assert driver.ran[1] == ["nvidia-smi", "-i", "1", "-mig", "1"]
    assert driver.ran[3][:3] == ["nvidia-ctk", "cdi", "generate"]
    driver.ran.clear()
    assert gpus.prepare(part, MACHINE) == ["MIG-1-4"]
    assert gpus.names(part) == ("MIG 3g.20gb at 1:4",)
    assert not driver.ran
    with pytest.raises(AgentError, match="not listed after its creation"):
        GpuParts(Driver(nvml, creates=False), nvml).prepare(mig_slice("3g.20gb", 0, 0), MACHINE)


def test_a_part_replaces_those_that_it_overlaps_and_no_others() -> None:
    nvml = FakeNvml()
    driver = Driver(nvml)
    gpus = GpuParts(driver, nvml)
    for start in (0, 4, 6):
        gpus.prepare(mig_slice("2g.10gb" if start < 6 else "1g.10gb", start), MACHINE)
    assert gpus.prepare(mig_slice("3g.20gb", 4), MACHINE) == ["MIG-1-4"]
    assert nvml.parts == {(1, 0): 2, (1, 4): 4}
    # Another profile that begins where the old one did.
    assert gpus.prepare(mig_slice("1g.5gb", 4), MACHINE) == ["MIG-1-4"]
    assert nvml.parts == {(1, 0): 2, (1, 4): 1}


def test_a_partitioned_gpu_becomes_whole_again() -> None:
    nvml = FakeNvml()
    driver = Driver(nvml)
    gpus = GpuParts(driver, nvml)
    gpus.prepare(mig_slice("2g.10gb", 0), MACHINE)
    assert gpus.prepare(Slice((1,), 40, GIB, gpus=(0, 1)), MACHINE) == ["GPU-0", "GPU-1"]
    assert (driver.partitioned, nvml.parts) == (set(), {})


def test_a_whole_gpu_is_known_by_its_uuid() -> None:
    part = Slice((1,), 40, GIB, gpus=(0, 1))
    assert GpuParts(DockerDouble(), FakeNvml()).names(part) == ("GPU-0", "GPU-1")
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


def test_an_invalid_list_raises_once_and_is_not_cached(bucket: Any, tmp_path: Path) -> None:
    listing = TenantListReader(bucket, "agents", "shared", tmp_path / "tenants.json")
    bucket.put_object(Bucket="agents", Key=codec.key_of("shared"), Body='{"tenants": [{"name": "x"}]}')
    with pytest.raises(ConfigError):
        listing.fetch()
    assert listing.fetch() is None
    assert listing.cached() is None


# --- docker ---


def test_a_cpuset_is_read_as_the_kernel_writes_it() -> None:
    assert docker.cpus("0-2,48,50-51\n") == (0, 1, 2, 48, 50, 51)
    assert docker.cpus("") == ()
    assert docker.cpus(Slice((0, 1, 2, 48), 40, GIB).cpuset) == (0, 1, 2, 48)


def test_no_tenant_starts_without_a_firewall() -> None:
    class Bare(DockerDouble):
        def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
            if argv[0] == "nft":
                raise AgentError("nft: No such file or directory")
            return super().run(argv, stdin, environment)

    with pytest.raises(AgentError, match=r"none is started: nft.*; allowed: a machine with nftables"):
        firewall.apply_rules(Bare(), {2001: 10**9})
