"""The tenant supervisor against Docker in memory: it changes what differs, and no other tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contracts.registry.tenant_wait import TenantWait
from tests.node.clocks import FakeClock
from tests.tenants.docker_double import DockerDouble, options
from tests.tenants.hosts import host, tenant
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics import emf
from userdata.agent.metrics.owner import Owners
from userdata.agent.tenants.host.container import TenantPaths, name_of
from userdata.agent.tenants.host.meter import Counters, UsageMeter
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.host.supervisor import SupervisorDependencies, TenantSupervisor
from userdata.agent.tenants.model import HostShape, Slice, Tenant
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

ADA, BO, CY = tenant("ada"), tenant("bo", host_port=8002, container_port=80), tenant("cy", gpus=2)


class FakeVolumes:
    """Volumes that attach at once or fail; the leases of ``lost`` belong to another host."""

    def __init__(self, paths: TenantPaths) -> None:
        self.paths = paths
        self.sizes: dict[str, int] = {}
        self.fails: set[str] = set()
        self.lost: set[str] = set()
        self.released: list[str] = []

    def attach(self, tenant: str, data_gib: int) -> None:
        if tenant in self.fails:
            raise AgentError(f"volume of {tenant} cannot be attached")
        self.sizes[tenant] = data_gib

    def release(self, tenant: str) -> None:
        self.sizes.pop(tenant, None)
        self.released.append(tenant)

    def tenants(self) -> frozenset[str]:
        return frozenset(self.sizes)

    def renew_leases(self) -> frozenset[str]:
        lost, self.lost = frozenset(self.lost), set()
        return lost


class GpuNames(GpuParts):
    """GPUs without a driver."""

    def names(self, part: Slice) -> tuple[str, ...]:
        return tuple(f"GPU-{gpu}" for gpu in part.gpus)

    def prepare(self, part: Slice, shape: HostShape) -> list[str]:
        return list(self.names(part))


class FakeHeartbeats:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.waits: dict[str, str] | None = None

    def send(
        self,
        slots: Any,
        *,
        waiting: bool = False,
        draining: bool = False,
        tenant_waits: tuple[TenantWait, ...] | None = None,
        **_: Any,
    ) -> frozenset[int]:
        self.waits = None if tenant_waits is None else {one.tenant: one.reason for one in tenant_waits}
        self.states.append("waiting" if waiting else "draining" if draining else "ready")
        return frozenset()

    def deregister(self, slot: int) -> None:
        self.states.append("deregistered")


class Bench:
    def __init__(self, tmp: Path) -> None:
        self.docker, self.clock, self.heartbeats = DockerDouble(), FakeClock(), FakeHeartbeats()
        self.paths = TenantPaths("10.0.1.5", tmp / "run", tmp / "tenants", tmp / "cdi")
        self.volumes = FakeVolumes(self.paths)
        self.list: Callable[[], tuple[Tenant, ...] | None] = lambda: (ADA, BO, CY)
        self.later: list[Callable[[], None]] = []
        self.sent: list[tuple[str, dict[str, float]]] = []
        self.counters: Callable[[int], Counters | None] = lambda pid: Counters(0.0, 0)
        self.at_once = True
        self.pulled: list[str] = []

    def supervisor(self, before: tuple[Tenant, ...] | None = None) -> TenantSupervisor:
        def send(name: str, metrics: list[emf.Metric]) -> None:
            self.sent.append((name, {metric.name: metric.values[0] for metric in metrics}))

        dependencies = SupervisorDependencies(
            host=self.docker,
            clock=self.clock,
            run_in_background=lambda work: work() if self.at_once else self.later.append(work),
            heartbeats=self.heartbeats,
            volumes=self.volumes,
            meter=UsageMeter(send, lambda: None, lambda pid: self.counters(pid)),
            weight_curve=WeightCurve(self.paths.run),
            fetch_tenants=lambda: self.list(),
            cached_tenants=lambda: before,
            read_shape=host,
            pull_image=self.pulled.append,
            gpus=GpuNames(self.docker, None),
            list_interval_seconds=5.0,
        )
        return TenantSupervisor(dependencies, self.paths)

    def pass_(self, supervisor: TenantSupervisor, seconds: int = 10) -> bool:
        continues = True
        for _ in range(seconds):
            continues = supervisor.tick()
            self.clock.advance(1.0)
        return continues

    def settled(self) -> TenantSupervisor:
        supervisor = self.supervisor()
        self.pass_(supervisor)
        assert sorted(self.docker.pids()) == ["ada", "bo", "cy"]
        return supervisor

    def announce(self, seconds: float, drain: float) -> None:
        now = self.clock.wall()
        notice.write(self.paths.run, Notice("spot", "terminate", "soon", now + seconds, now + drain, now))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_are_started_and_the_host_is_ready_once_they_are(bench: Bench) -> None:
    bench.settled()
    assert bench.heartbeats.states[0] == "waiting"
    assert bench.heartbeats.states[-1] == "ready"
    users = ", ".join(map(str, sorted(one.uid for one in (ADA, BO, CY))))
    assert f"skuid {{ {users} }}" in bench.docker.rules
    assert bench.docker.ran.index(["nft", "--file", "-"]) < min(
        at for at, argv in enumerate(bench.docker.ran) if argv[:2] == ["docker", "run"]
    )


def test_one_that_changes_is_replaced_and_no_other(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, environment={"A": "1"}), BO, CY)
    bench.pass_(supervisor)
    after = bench.docker.pids()
    assert after["ada"] != before["ada"]
    assert (after["bo"], after["cy"]) == (before["bo"], before["cy"])
    assert "A=1" in bench.paths.environment_file("ada").read_text()


def test_cpus_are_changed_while_a_container_runs(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, cpus=8), replace(BO, cpu_mode="pinned"), CY)
    bench.pass_(supervisor)
    limits = {name: one["HostConfig"] for name, one in bench.docker.containers.items()}
    assert limits[name_of("ada")]["CpuShares"] == 4 * limits[name_of("cy")]["CpuShares"]
    assert limits[name_of("ada")]["CpusetCpus"] == limits[name_of("cy")]["CpusetCpus"]
    assert limits[name_of("bo")]["CpusetCpus"] not in limits[name_of("cy")]["CpusetCpus"]
    after = bench.docker.pids()
    assert (after["ada"], after["cy"]) == (before["ada"], before["cy"])


def test_a_cap_is_set_and_removed_while_a_container_runs(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    for mode, quota in (("capped", 800_000), ("shared", -1)):
        changed = replace(ADA, cpus=8, cpu_mode=mode)
        bench.list = lambda changed=changed: (changed, BO, CY)  # type: ignore[misc]
        bench.pass_(supervisor)
        limits = {name: one["HostConfig"] for name, one in bench.docker.containers.items()}
        assert limits[name_of("ada")]["CpuQuota"] == quota
        assert limits[name_of("ada")]["CpusetCpus"] == limits[name_of("cy")]["CpusetCpus"]
        assert limits[name_of("cy")]["CpuQuota"] == -1
    assert bench.docker.pids() == before


def test_each_container_starts_with_an_empty_tmp_and_the_uuids_of_its_gpus(bench: Bench) -> None:
    bench.settled()
    path = str(bench.paths.temporary_directory("cy"))
    ran = [argv for argv in bench.docker.ran if path in argv or (argv[:2] == ["docker", "run"])]
    at = next(n for n, argv in enumerate(ran) if name_of("cy") in argv)
    assert [ran[at - 2][0], ran[at - 1][0]] == ["rm", "install"]
    assert "--mode=1777" in ran[at - 1]
    devices = "GPU-0,GPU-1"
    assert f"NVIDIA_VISIBLE_DEVICES={devices}\n" in bench.paths.environment_file("cy").read_text()
    [device] = json.loads(bench.paths.cdi_file("cy").read_text())["devices"]
    assert device == {"name": "cy", "containerEdits": {"env": [f"NVIDIA_VISIBLE_DEVICES={devices}"]}}
    assert not bench.paths.cdi_file("ada").exists()
    assert "NVIDIA_VISIBLE_DEVICES=void\n" in bench.paths.environment_file("ada").read_text()


def test_the_files_of_a_removed_tenant_are_removed(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.list = lambda: (ADA, BO)
    bench.pass_(supervisor)
    assert not bench.paths.cdi_file("cy").exists()
    assert not list((bench.paths.run / "workers").glob("cy.*"))


def test_a_new_process_adopts_running_containers(bench: Bench) -> None:
    first = bench.settled()
    before = bench.docker.pids()
    first.stop()
    assert not first.tick()
    assert bench.docker.pids() == before
    second = bench.supervisor(before=(ADA, BO, CY))
    bench.list = _outage
    bench.pass_(second)
    assert bench.docker.pids() == before
    assert bench.heartbeats.states[-1] == "ready"


def _outage() -> tuple[Tenant, ...] | None:
    raise AgentError("s3: no answer")


def test_an_outage_of_the_list_changes_nothing_and_crashed_tenants_are_restarted(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = _outage
    bench.docker.die(name_of("bo"))
    bench.pass_(supervisor)
    after = bench.docker.pids()
    assert after.keys() == before.keys()
    assert after["bo"] != before["bo"]
    assert after["ada"] == before["ada"]


def test_a_list_that_does_not_fit_changes_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, gpus=9), BO)
    bench.pass_(supervisor, 30)
    assert bench.docker.pids() == before
    assert bench.heartbeats.waits == {
        "ada": "the list is refused: tenant 'ada': 9 GPUs, allowed: 8 of 8 GPUs, which the tenants before it "
        "leave"
    }
    # The list before it stays in effect.
    bench.docker.die(name_of("cy"))
    bench.pass_(supervisor)
    assert bench.docker.pids().keys() == before.keys()


@pytest.mark.parametrize("resource", ["port", "uid", "GPU"])
def test_tenants_that_exchange_what_they_have_are_stopped_and_started(bench: Bench, resource: str) -> None:
    ones: list[dict[str, Any]] = [
        {"uid": 2001, "host_port": 8001, "container_port": 80, "gpu_ids": (0,)},
        {"uid": 2002, "host_port": 8002, "container_port": 80, "gpu_ids": (1,)},
    ]
    key = {"port": "host_port", "uid": "uid", "GPU": "gpu_ids"}[resource]
    a, b = tenant("a", **ones[0]), tenant("b", **ones[1])
    changed = replace(a, **{key: ones[1][key]}), replace(b, **{key: ones[0][key]})
    bench.list = lambda: (a, b)
    supervisor = bench.supervisor()
    bench.pass_(supervisor)
    before = bench.docker.pids()
    bench.list = lambda: changed
    bench.pass_(supervisor, 20)
    after = bench.docker.pids()
    assert after.keys() == {"a", "b"}
    assert not {*after.values()} & {*before.values()}
    assert bench.heartbeats.waits == {}


def test_a_tenant_whose_replacement_fails_does_not_keep_another_waiting(bench: Bench) -> None:
    a, b = tenant("a", host_port=8001, container_port=80), tenant("b", host_port=8002, container_port=80)
    bench.list = lambda: (a, b)
    supervisor = bench.supervisor()
    bench.pass_(supervisor)
    bench.volumes.fails = {"a"}
    bench.list = lambda: (replace(a, host_port=8003), replace(b, host_port=8001))
    bench.pass_(supervisor, 8)
    assert bench.heartbeats.waits is not None
    assert bench.heartbeats.waits["b"] == "waits for port 8001 of 'a'"
    bench.pass_(supervisor, 30)
    assert list(bench.docker.pids()) == ["b"]
    assert bench.heartbeats.waits.keys() == {"a"}
    assert bench.heartbeats.waits["a"].endswith("times: volume of a cannot be attached")
    bench.pass_(supervisor, 60)
    assert dict(bench.sent)["a"]["TenantWaiting"] == 1.0
    assert dict(bench.sent)["b"]["TenantWaiting"] == 0.0


def test_a_directory_changes_its_owner_only_while_no_container_uses_it(bench: Bench) -> None:
    supervisor = bench.settled()
    directory = bench.paths.volume_path("ada") / "data"
    directory.mkdir(parents=True)
    bench.docker.ran.clear()
    bench.list = lambda: (replace(ADA, uid=2999), BO, CY)
    bench.pass_(supervisor)
    [owned] = [
        n for n, argv in enumerate(bench.docker.ran) if argv[0] == "chown" and argv[-1] == str(directory)
    ]
    removed = bench.docker.ran.index(["docker", "rm", "--force", "--volumes", name_of("ada")])
    [ran] = [n for n, argv in enumerate(bench.docker.ran) if argv[:2] == ["docker", "run"]]
    assert removed < owned < ran


def test_a_list_that_changes_while_a_tenant_starts_gives_its_gpus_to_no_other(bench: Bench) -> None:
    bench.list = lambda: (tenant("a", gpus=8),)
    supervisor = bench.supervisor()
    bench.at_once = False
    bench.pass_(supervisor, 2)
    while bench.later:  # the list is read; the start begins
        bench.later.pop(0)()
        bench.pass_(supervisor, 3)
        if len(bench.later) > 1:
            break
    assert not bench.docker.containers
    starting = bench.later[:]
    bench.later.clear()
    bench.list = lambda: (tenant("b", gpus=8),)
    for _ in range(10):
        bench.pass_(supervisor, 3)
        for work in bench.later:
            work()
        bench.later.clear()
    assert not bench.docker.containers
    assert bench.heartbeats.waits == {"b": "waits for GPU 0 of 'a'"}
    for work in starting:
        work()
    bench.at_once = True
    bench.pass_(supervisor, 20)
    assert list(bench.docker.pids()) == ["b"]


def test_until_a_list_is_read_it_is_unknown_who_waits(bench: Bench) -> None:
    bench.list = _outage
    bench.pass_(bench.supervisor())
    assert bench.heartbeats.waits is None


def test_a_changed_tenant_is_not_kept_waiting_by_the_failures_before(bench: Bench) -> None:
    bench.docker.refuses = {"bad"}
    bench.list = lambda: (tenant("a", image="bad"),)
    supervisor = bench.supervisor()
    bench.pass_(supervisor, 100)
    bench.list = lambda: (tenant("a"),)
    bench.pass_(supervisor, 10)
    assert list(bench.docker.pids()) == ["a"]


def test_restarts_after_crashes_back_off_and_are_counted(bench: Bench) -> None:
    supervisor = bench.settled()
    starts = []
    for second in range(120):
        supervisor.tick()
        if "ada" in bench.docker.pids():
            starts.append(second)
            bench.docker.die(name_of("ada"))
        bench.clock.advance(1.0)
    pauses = [later - sooner for sooner, later in pairwise(starts)]
    assert len(starts) <= 7
    assert pauses == sorted(pauses)
    assert sum(values.get("TenantRestarts", 0) for name, values in bench.sent if name == "ada") >= 3


def test_a_gpu_goes_to_another_only_once_its_container_is_gone(bench: Bench) -> None:
    full = tenant("full", gpus=8)
    bench.list = lambda: (full,)
    supervisor = bench.supervisor()
    bench.pass_(supervisor)
    bench.list = lambda: (tenant("heir", gpus=8),)
    bench.at_once = False
    bench.pass_(supervisor, 8)
    assert list(bench.docker.containers) == [name_of("full")]
    bench.at_once = True
    for work in bench.later:
        work()
    bench.pass_(supervisor)
    assert list(bench.docker.pids()) == ["heir"]
    assert bench.volumes.released == ["full"]


def test_a_tenant_removed_from_the_list_releases_its_volume_even_without_a_container(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.docker.refuses = {"bad"}
    bench.list = lambda: (ADA, tenant("dee", image="bad"))
    bench.pass_(supervisor, 20)
    assert sorted(bench.docker.pids()) == ["ada"]
    assert set(bench.volumes.sizes) == {"ada", "dee"}
    assert bench.heartbeats.states[-1] == "ready"
    bench.list = lambda: (ADA,)
    bench.pass_(supervisor, 60)
    assert set(bench.volumes.sizes) == {"ada"}
    assert set(bench.docker.networks) == {name_of("ada")}


def test_a_volume_that_cannot_be_attached_does_not_block_other_tenants(bench: Bench) -> None:
    bench.volumes.fails = {"bo"}
    supervisor = bench.supervisor()
    bench.pass_(supervisor, 4)
    assert sorted(bench.docker.pids()) == ["ada", "cy"]
    assert bench.heartbeats.states[-1] == "waiting"
    bench.volumes.fails = set()
    bench.pass_(supervisor, 20)
    assert sorted(bench.docker.pids()) == ["ada", "bo", "cy"]


def test_a_tenant_with_a_lost_volume_lease_is_removed(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.volumes.fails, bench.volumes.lost = {"bo"}, {"bo"}
    bench.pass_(supervisor)
    assert "bo" not in bench.docker.pids()
    assert bench.docker.pids()["ada"] == before["ada"]
    assert "bo" in bench.volumes.released


def test_a_larger_volume_grows_under_a_container_that_runs(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, data_gib=500), BO, CY)
    bench.pass_(supervisor)
    assert bench.volumes.sizes["ada"] == 500
    assert bench.docker.pids() == before


def test_docker_is_queried_again_after_an_outage(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.docker.is_down = True
    bench.pass_(supervisor)
    assert bench.heartbeats.states[-1] == "ready"
    bench.docker.is_down = False
    bench.docker.die(name_of("cy"))
    bench.pass_(supervisor)
    assert "cy" in bench.docker.pids()


def test_a_notice_is_shown_at_once_and_all_end_from_its_drain_on(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.announce(120.0, 100.0)
    bench.docker.die(name_of("cy"))
    bench.pass_(supervisor, 50)
    assert (
        json.loads((bench.paths.notice_directory("ada") / "notice.json").read_text())["announced"] == "soon"
    )
    assert sorted(bench.docker.pids()) == ["ada", "bo"]  # no tenant is started any more
    supervisor.stop()
    bench.pass_(supervisor, 2)
    stops = [argv for argv in bench.docker.ran if argv[:2] == ["docker", "stop"]]
    assert {argv[-1] for argv in stops} >= {name_of("ada"), name_of("bo")}
    assert all(40 <= int(options(argv, "--time")[0]) <= 70 for argv in stops)
    assert not bench.volumes.sizes
    assert bench.heartbeats.states[-1] == "deregistered"
    assert not supervisor.tick()


def test_a_supervisor_started_after_the_notice_removes_all_tenants(bench: Bench) -> None:
    bench.settled()
    bench.announce(60.0, 0.0)
    second = bench.supervisor(before=(ADA, BO, CY))
    bench.pass_(second, 3)
    assert bench.docker.pids() == {}
    assert not bench.volumes.sizes


def test_what_each_used_and_lent_is_sent_once_a_minute(bench: Bench) -> None:
    spent = {"ada": 0.0, "bo": 0.0, "cy": 0.0}

    def read(pid: int) -> Counters:
        [name] = [name for name, one in bench.docker.pids().items() if one == pid]
        return Counters(spent[name], 3_000_000_000, throttled=spent[name] / 10)

    bench.counters = read
    bench.list = lambda: (ADA, replace(BO, cpu_mode="capped"), CY)
    supervisor = bench.settled()
    spent |= {"ada": 240.0, "bo": 60.0}  # each has declared two CPUs
    bench.pass_(supervisor, 60)
    sent = dict(bench.sent)
    assert sent["ada"]["TenantCpuSeconds"] == 240.0
    borrowed = sent["ada"]["TenantCpuBorrowedSeconds"]
    assert borrowed == pytest.approx(120.0, abs=10)
    assert sent["bo"]["TenantCpuLentSeconds"] + sent["cy"]["TenantCpuLentSeconds"] == pytest.approx(
        borrowed, abs=0.1
    )
    assert sent["bo"]["TenantCpuLentSeconds"] < sent["cy"]["TenantCpuLentSeconds"]
    assert sent["cy"]["TenantMemory"] == 3000.0
    assert sent["bo"]["TenantCpuThrottledSeconds"] == 6.0
    assert "TenantCpuThrottledSeconds" not in sent["ada"]


def test_a_process_on_a_gpu_is_known_to_be_the_tenants(bench: Bench, tmp_path: Path) -> None:
    bench.settled()
    id_ = bench.docker.containers[name_of("cy")]["Id"]
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "cgroup").write_text(f"0::/system.slice/docker-{id_}.scope\n")
    assert Owners(bench.paths.run, tmp_path / "proc").slot_of(77) == "cy"
