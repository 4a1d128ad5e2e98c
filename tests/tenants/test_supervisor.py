"""The tenant supervisor against Docker in memory: it changes what differs, and no other tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tenants.docker_double import options
from tests.tenants.hosts import host, tenant
from tests.tenants.supervised import ADA, BO, CY, Bench, outage
from userdata.agent.metrics.owner import Owners
from userdata.agent.tenants.host import docker, firewall, meter
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.host.limiter import LendingTenant
from userdata.agent.tenants.host.meter import Counters
from userdata.agent.tenants.model import MigInstance, Slice
from userdata.agent.work import notice


def test_all_are_started_and_the_host_is_ready_once_they_are(bench: Bench) -> None:
    bench.settled()
    assert bench.heartbeats.states[0] == "waiting"
    assert bench.heartbeats.states[-1] == "ready"
    users = ", ".join(map(str, sorted(one.uid for one in (ADA, BO, CY))))
    assert f"skuid {{ {users} }}" in bench.docker.rules
    assert bench.docker.ran.index(["nft", "--file", "-"]) < min(
        at for at, argv in enumerate(bench.docker.ran) if argv[:2] == ["docker", "run"]
    )


def test_dockers_daemons_have_the_systems_cpus_and_tenants_have_others(bench: Bench) -> None:
    supervisor = bench.settled()
    confined = [argv for argv in bench.docker.ran if argv[0] == "systemctl"]
    prefix = ["systemctl", "set-property", "--runtime"]
    # A core of two CPUs, of 24 cores.
    services = ("docker.service", "containerd.service")
    assert confined == [[*prefix, service, "AllowedCPUs=0,24"] for service in services]
    for argv in (argv for argv in bench.docker.ran if argv[:2] == ["docker", "run"]):
        assert not {0, 24} & {*docker.cpus(options(argv, "--cpuset-cpus")[0])}
    bench.list = lambda: (ADA, BO)
    bench.pass_(supervisor)
    assert [argv for argv in bench.docker.ran if argv[0] == "systemctl"] == confined


def test_throughput_is_bounded_by_the_share_of_cpus(bench: Bench) -> None:
    bench.settled()
    share = ADA.cpus / host().cpus
    assert f'iifname "gst-{ADA.uid}" limit rate over {int(8e9 * share)} bytes/second' in bench.docker.rules
    [started] = [argv for argv in bench.docker.ran if argv[:2] == ["docker", "run"] and "ada" in str(argv[6])]
    assert options(started, "--device-write-bps") == [f"/dev/disk-of-ada:{int(4e9 * share)}"]
    image = max(int(131_072_000 * share), 8 * 2**20)
    assert options(started, "--device-read-bps")[1:] == [f"/dev/disk-of-docker:{image}"]


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
    bench.list = outage
    bench.pass_(second)
    assert bench.docker.pids() == before
    assert bench.heartbeats.states[-1] == "ready"


def test_anoutage_of_the_list_changes_nothing_and_crashed_tenants_are_restarted(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = outage
    bench.docker.die(name_of("bo"))
    bench.pass_(supervisor)
    after = bench.docker.pids()
    assert after.keys() == before.keys()
    assert after["bo"] != before["bo"]
    assert after["ada"] == before["ada"]


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


def test_rules_that_are_flushed_are_applied_again_within_a_minute(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = bench.settled()
    rules = bench.docker.rules
    bench.docker.ran.clear()
    bench.pass_(supervisor, 120)
    assert ["nft", "--file", "-"] not in bench.docker.ran  # what they count goes on
    bench.docker.rules = ""  # systemctl restart nftables
    bench.pass_(supervisor, 62)
    assert bench.docker.rules == rules
    with monkeypatch.context() as context:
        bench.docker.rules = ""
        context.setattr(firewall, "rules", lambda rates: outage())
        bench.pass_(supervisor, 62)
        assert all("cannot isolate" in (bench.heartbeats.waits or {})[name] for name in ("ada", "bo", "cy"))
    bench.pass_(supervisor, 62)
    assert bench.heartbeats.waits == {}


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


def test_a_growth_that_ebs_refuses_is_tried_again_and_is_a_wait(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, data_gib=500), BO, CY)
    bench.volumes.growth_errors["ada"] = "IncorrectModificationState"
    bench.pass_(supervisor)
    assert bench.heartbeats.waits == {"ada": "its volume has not its size yet: IncorrectModificationState"}
    bench.volumes.growth_errors.clear()
    bench.volumes.fails = {"ada"}
    bench.pass_(supervisor, 310)
    assert "cannot be attached" in (bench.heartbeats.waits or {})["ada"]
    bench.volumes.fails.clear()
    bench.pass_(supervisor, 310)
    assert (bench.heartbeats.waits, bench.docker.pids()) == ({}, before)


def test_docker_is_queried_again_after_anoutage(bench: Bench) -> None:
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


def test_a_removal_that_fails_is_repeated_while_time_remains(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.docker.is_down = True
    bench.announce(120.0, 20.0)
    assert bench.pass_(supervisor, 60)
    assert sorted(bench.volumes.sizes) == ["ada", "bo", "cy"]
    bench.docker.is_down = False
    assert not bench.pass_(supervisor, 7)
    assert (bench.docker.pids(), bench.volumes.sizes) == ({}, {})


def test_the_drain_ends_with_the_notice_even_if_nothing_can_be_removed(bench: Bench) -> None:
    supervisor = bench.settled()
    bench.docker.is_down = True
    bench.announce(120.0, 20.0)
    assert [bench.pass_(supervisor, 110), bench.pass_(supervisor, 11)] == [True, False]


def test_a_notice_that_cannot_be_passed_to_one_reaches_the_others_and_later_it(bench: Bench) -> None:
    supervisor = bench.settled()
    folder = bench.paths.notice_directory("ada")
    folder.rmdir()
    folder.write_text("")
    bench.announce(120.0, 100.0)
    bench.pass_(supervisor, 2)
    assert notice.read(bench.paths.notice_directory("cy"))
    folder.unlink()
    bench.pass_(supervisor, 2)
    assert notice.read(folder)


def test_a_supervisor_started_after_the_notice_removes_all_tenants(bench: Bench) -> None:
    bench.settled()
    bench.announce(60.0, 0.0)
    second = bench.supervisor(before=(ADA, BO, CY))
    bench.pass_(second, 3)
    assert bench.docker.pids() == {}
    assert not bench.volumes.sizes


def test_tenants_of_shared_cpus_are_watched(bench: Bench) -> None:
    bench.list = lambda: (ADA, replace(BO, cpu_mode="capped"), replace(CY, cpu_mode="pinned"))
    bench.settled()
    pids = bench.docker.pids()
    assert bench.watched[-1] == {
        "ada": LendingTenant(pids["ada"], ADA.cpus),
        "bo": LendingTenant(pids["bo"], BO.cpus, can_borrow=False),
    }


def test_what_each_used_and_lent_is_sent_once_a_minute(bench: Bench) -> None:
    spent = {"ada": 0.0, "bo": 0.0, "cy": 0.0}

    def read(pid: int) -> Counters:
        [name] = [name for name, one in bench.docker.pids().items() if one == pid]
        # A shared tenant is limited while a neighbour lacks CPUs.
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
    assert sent["ada"]["TenantCpuThrottledSeconds"] == 24.0
    assert "TenantCpuThrottledSeconds" not in sent["cy"]
    # What is reserved for a tenant and what the host has are of the same interval.
    interval = sent[meter.HOST]["HostCpuSeconds"] / host().cpus
    assert interval == pytest.approx(60.0, abs=2)
    assert sent["ada"]["TenantCpuReservedSeconds"] == pytest.approx(ADA.cpus * interval, abs=0.1)
    assert sent["ada"]["TenantGpuReservedSeconds"] == pytest.approx(ADA.gpus * interval, abs=0.1)
    assert sent["ada"]["TenantMemoryReservedGibHours"] == pytest.approx(
        ADA.memory_gib * interval / 3600, abs=1e-3
    )
    assert sent[meter.HOST]["HostGpuSeconds"] == pytest.approx(len(host().gpus) * interval, abs=0.1)
    assert sent[meter.HOST]["HostMemoryGibHours"] == pytest.approx(
        host().memory_gib * interval / 3600, abs=1e-3
    )


def test_a_mig_instance_is_part_of_a_gpu_by_its_memory() -> None:
    profiles = host().mig
    gpus = {
        profile.name: meter.gpus_of(Slice((0,), 40, 2**30, mig=MigInstance(0, profile.name, 0)), profiles)
        for profile in profiles
    }
    assert (gpus["1g.5gb"], gpus["3g.20gb"], gpus["7g.40gb"]) == (1 / 8, 1 / 2, 1.0)
    assert meter.gpus_of(Slice((0,), 40, 2**30, mig=MigInstance(0, "1g.99gb", 0)), profiles) == 1.0
    assert meter.gpus_of(Slice((0,), 40, 2**30, gpus=(1, 5)), profiles) == 2.0


def test_a_process_on_a_gpu_is_known_to_be_the_tenants(bench: Bench, tmp_path: Path) -> None:
    bench.settled()
    id_ = bench.docker.containers[name_of("cy")]["Id"]
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "cgroup").write_text(f"0::/system.slice/docker-{id_}.scope\n")
    assert Owners(bench.paths.run, tmp_path / "proc").slot_of(77) == "cy"


def test_a_notice_that_comes_before_the_plan_reaches_all(bench: Bench) -> None:
    bench.settled()
    waiting: list[Callable[[], None]] = []
    at_once = bench.run_in_background

    def run(work: Callable[[], None]) -> None:
        is_plan = work.__self__._name == "plan"  # type: ignore[attr-defined]
        (waiting.append if is_plan else at_once)(work)

    bench.run_in_background = run  # type: ignore[method-assign]
    supervisor = bench.supervisor((ADA, BO, CY))  # the agent was started again
    bench.pass_(supervisor, 2)
    bench.announce(120, 60)
    bench.pass_(supervisor, 2)
    waiting.pop()()
    bench.pass_(supervisor, 3)
    assert all(notice.read(bench.paths.notice_directory(name)) for name in ("ada", "bo", "cy"))
