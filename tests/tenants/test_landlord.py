"""The landlord against Docker in memory: what differs is changed, and nobody else hears of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.node.clocks import FakeClock
from tests.tenants.docker_double import DockerDouble, options
from tests.tenants.hosts import host, tenant
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics import emf
from userdata.agent.metrics.owner import Owners
from userdata.agent.tenants.host.container import HostPlace, name_of
from userdata.agent.tenants.host.meter import Counters, Meter
from userdata.agent.tenants.host.shares import Shares
from userdata.agent.tenants.host.supervisor import Landlord, Means
from userdata.agent.tenants.model import Tenant
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

ADA, BO, CY = tenant("ada"), tenant("bo", host_port=8002, container_port=80), tenant("cy", gpus=2)


class Homes:
    """Volumes that are here at once, or not at all; ``lost`` are another host's by now."""

    def __init__(self, place: HostPlace) -> None:
        self.place = place
        self.here: dict[str, int] = {}
        self.fails: set[str] = set()
        self.lost: set[str] = set()
        self.given: list[str] = []

    def bring(self, tenant: str, data_gib: int) -> None:
        if tenant in self.fails:
            raise AgentError(f"volume of {tenant} does not come")
        self.here[tenant] = data_gib

    def give_back(self, tenant: str) -> None:
        self.here.pop(tenant, None)
        self.given.append(tenant)

    def held(self) -> frozenset[str]:
        return frozenset(self.here)

    def keep(self) -> frozenset[str]:
        found, self.lost = frozenset(self.lost), set()
        return found


class Pulse:
    def __init__(self) -> None:
        self.said: list[str] = []

    def beat(self, slots: Any, *, waiting: bool = False, draining: bool = False, **_: Any) -> frozenset[int]:
        self.said.append("waiting" if waiting else "draining" if draining else "ready")
        return frozenset()

    def leave(self, slot: int) -> None:
        self.said.append("left")


class Bench:
    def __init__(self, tmp: Path) -> None:
        self.docker, self.clock, self.pulse = DockerDouble(), FakeClock(), Pulse()
        self.place = HostPlace("10.0.1.5", tmp / "run", tmp / "tenants")
        self.homes = Homes(self.place)
        self.list: Callable[[], tuple[Tenant, ...] | None] = lambda: (ADA, BO, CY)
        self.later: list[Callable[[], None]] = []
        self.sent: list[tuple[str, dict[str, float]]] = []
        self.counters: Callable[[int], Counters | None] = lambda pid: Counters(0.0, 0)
        self.at_once = True
        self.pulled: list[str] = []

    def landlord(self, before: tuple[Tenant, ...] | None = None) -> Landlord:
        def send(name: str, metrics: list[emf.Metric]) -> None:
            self.sent.append((name, {one.name: one.values[0] for one in metrics}))

        means = Means(
            host=self.docker,
            clock=self.clock,
            aside=lambda work: work() if self.at_once else self.later.append(work),
            heart=self.pulse,
            homes=self.homes,
            meter=Meter(send, lambda: None, lambda pid: self.counters(pid)),
            shares=Shares(self.place.run),
            fetch=lambda: self.list(),
            before=lambda: before,
            shape=host,
            pull=self.pulled.append,
            devices=lambda part: [str(gpu) for gpu in part.gpus],
            list_every=5.0,
        )
        return Landlord(means, self.place)

    def pass_(self, landlord: Landlord, seconds: int = 10) -> bool:
        goes_on = True
        for _ in range(seconds):
            goes_on = landlord.tick()
            self.clock.advance(1.0)
        return goes_on

    def settled(self) -> Landlord:
        landlord = self.landlord()
        self.pass_(landlord)
        assert sorted(self.docker.pids()) == ["ada", "bo", "cy"]
        return landlord

    def announce(self, seconds: float, drain: float) -> None:
        now = self.clock.wall()
        notice.write(self.place.run, Notice("spot", "terminate", "soon", now + seconds, now + drain, now))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_are_started_and_the_host_is_ready_once_they_are(bench: Bench) -> None:
    bench.settled()
    assert bench.pulse.said[0] == "waiting"
    assert bench.pulse.said[-1] == "ready"
    users = ", ".join(map(str, sorted(one.uid for one in (ADA, BO, CY))))
    assert f"skuid {{ {users} }}" in bench.docker.rules
    assert bench.docker.ran.index(["nft", "--file", "-"]) < min(
        at for at, argv in enumerate(bench.docker.ran) if argv[:2] == ["docker", "run"]
    )


def test_one_that_changes_is_replaced_and_no_other(bench: Bench) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, environment={"A": "1"}), BO, CY)
    bench.pass_(landlord)
    after = bench.docker.pids()
    assert after["ada"] != before["ada"]
    assert (after["bo"], after["cy"]) == (before["bo"], before["cy"])
    assert "A=1" in bench.place.environment("ada").read_text()


def test_cpus_are_changed_while_a_container_runs(bench: Bench) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, cpus=8), replace(BO, cpu_mode="pinned"), CY)
    bench.pass_(landlord)
    limits = {name: one["HostConfig"] for name, one in bench.docker.containers.items()}
    assert limits[name_of("ada")]["CpuShares"] == 4 * limits[name_of("cy")]["CpuShares"]
    assert limits[name_of("ada")]["CpusetCpus"] == limits[name_of("cy")]["CpusetCpus"]
    assert limits[name_of("bo")]["CpusetCpus"] not in limits[name_of("cy")]["CpusetCpus"]
    after = bench.docker.pids()
    assert (after["ada"], after["cy"]) == (before["ada"], before["cy"])


def test_a_new_process_takes_over_what_runs_as_it_is(bench: Bench) -> None:
    first = bench.settled()
    before = bench.docker.pids()
    first.stop()
    assert not first.tick()
    assert bench.docker.pids() == before
    second = bench.landlord(before=(ADA, BO, CY))
    bench.list = _outage
    bench.pass_(second)
    assert bench.docker.pids() == before
    assert bench.pulse.said[-1] == "ready"


def _outage() -> tuple[Tenant, ...] | None:
    raise AgentError("s3: no answer")


def test_an_outage_of_the_list_changes_nothing_and_a_crash_is_mended_all_the_same(bench: Bench) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.list = _outage
    bench.docker.die(name_of("bo"))
    bench.pass_(landlord)
    after = bench.docker.pids()
    assert after.keys() == before.keys()
    assert after["bo"] != before["bo"]
    assert after["ada"] == before["ada"]


def test_a_list_that_does_not_fit_leaves_all_as_it_is(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, gpus=9), BO)
    bench.pass_(landlord, 30)
    assert bench.docker.pids() == before


def test_who_crashes_waits_longer_each_time_and_is_counted(bench: Bench) -> None:
    landlord = bench.settled()
    starts = []
    for second in range(120):
        landlord.tick()
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
    landlord = bench.landlord()
    bench.pass_(landlord)
    bench.list = lambda: (tenant("heir", gpus=8),)
    bench.at_once = False
    bench.pass_(landlord, 8)
    assert list(bench.docker.containers) == [name_of("full")]
    bench.at_once = True
    for work in bench.later:
        work()
    bench.pass_(landlord)
    assert list(bench.docker.pids()) == ["heir"]
    assert bench.homes.given == ["full"]


def test_who_is_gone_from_the_list_gives_its_volume_back_even_without_a_container(bench: Bench) -> None:
    landlord = bench.settled()
    bench.docker.refuses = {"bad"}
    bench.list = lambda: (ADA, tenant("dee", image="bad"))
    bench.pass_(landlord, 20)
    assert sorted(bench.docker.pids()) == ["ada"]
    assert set(bench.homes.here) == {"ada", "dee"}
    assert bench.pulse.said[-1] == "ready"
    bench.list = lambda: (ADA,)
    bench.pass_(landlord, 60)
    assert set(bench.homes.here) == {"ada"}
    assert set(bench.docker.networks) == {name_of("ada")}


def test_a_volume_that_does_not_come_holds_up_nobody_else(bench: Bench) -> None:
    bench.homes.fails = {"bo"}
    landlord = bench.landlord()
    bench.pass_(landlord, 4)
    assert sorted(bench.docker.pids()) == ["ada", "cy"]
    assert bench.pulse.said[-1] == "waiting"
    bench.homes.fails = set()
    bench.pass_(landlord, 20)
    assert sorted(bench.docker.pids()) == ["ada", "bo", "cy"]


def test_a_tenant_whose_volume_is_another_hosts_ends(bench: Bench) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.homes.fails, bench.homes.lost = {"bo"}, {"bo"}
    bench.pass_(landlord)
    assert "bo" not in bench.docker.pids()
    assert bench.docker.pids()["ada"] == before["ada"]
    assert "bo" in bench.homes.given


def test_a_larger_volume_grows_under_a_container_that_runs(bench: Bench) -> None:
    landlord = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, data_gib=500), BO, CY)
    bench.pass_(landlord)
    assert bench.homes.here["ada"] == 500
    assert bench.docker.pids() == before


def test_docker_that_is_away_is_asked_again(bench: Bench) -> None:
    landlord = bench.settled()
    bench.docker.is_down = True
    bench.pass_(landlord)
    assert bench.pulse.said[-1] == "ready"
    bench.docker.is_down = False
    bench.docker.die(name_of("cy"))
    bench.pass_(landlord)
    assert "cy" in bench.docker.pids()


def test_a_notice_is_shown_at_once_and_all_end_from_its_drain_on(bench: Bench) -> None:
    landlord = bench.settled()
    bench.announce(120.0, 100.0)
    bench.docker.die(name_of("cy"))
    bench.pass_(landlord, 50)
    assert json.loads((bench.place.told("ada") / "notice.json").read_text())["announced"] == "soon"
    assert sorted(bench.docker.pids()) == ["ada", "bo"]  # nobody is started any more
    landlord.stop()
    bench.pass_(landlord, 2)
    stops = [argv for argv in bench.docker.ran if argv[:2] == ["docker", "stop"]]
    assert {argv[-1] for argv in stops} >= {name_of("ada"), name_of("bo")}
    assert all(40 <= int(options(argv, "--time")[0]) <= 70 for argv in stops)
    assert not bench.homes.here
    assert bench.pulse.said[-1] == "left"
    assert not landlord.tick()


def test_a_landlord_that_was_started_after_the_notice_lets_all_go(bench: Bench) -> None:
    bench.settled()
    bench.announce(60.0, 0.0)
    second = bench.landlord(before=(ADA, BO, CY))
    bench.pass_(second, 3)
    assert bench.docker.pids() == {}
    assert not bench.homes.here


def test_what_each_used_and_lent_is_sent_once_a_minute(bench: Bench) -> None:
    spent = {"ada": 0.0, "bo": 0.0, "cy": 0.0}

    def read(pid: int) -> Counters:
        [name] = [name for name, one in bench.docker.pids().items() if one == pid]
        return Counters(spent[name], 3_000_000_000)

    bench.counters = read
    landlord = bench.settled()
    spent |= {"ada": 240.0, "bo": 60.0}  # each has declared two CPUs
    bench.pass_(landlord, 60)
    sent = dict(bench.sent)
    assert sent["ada"]["TenantCpuSeconds"] == 240.0
    borrowed = sent["ada"]["TenantCpuBorrowedSeconds"]
    assert borrowed == pytest.approx(120.0, abs=10)
    assert sent["bo"]["TenantCpuLentSeconds"] + sent["cy"]["TenantCpuLentSeconds"] == pytest.approx(
        borrowed, abs=0.1
    )
    assert sent["bo"]["TenantCpuLentSeconds"] < sent["cy"]["TenantCpuLentSeconds"]
    assert sent["cy"]["TenantMemory"] == 3000.0


def test_a_process_on_a_gpu_is_known_to_be_the_tenants(bench: Bench, tmp_path: Path) -> None:
    bench.settled()
    id_ = bench.docker.containers[name_of("cy")]["Id"]
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "cgroup").write_text(f"0::/system.slice/docker-{id_}.scope\n")
    assert Owners(bench.place.run, tmp_path / "proc").slot_of(77) == "cy"
