"""Tenants that wait: for each other, for an image, for a host that may run them; and what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tenants.docker_double import options
from tests.tenants.hosts import tenant
from tests.tenants.supervised import ADA, BO, CY, Bench, outage
from userdata.agent.machine.errors import AgentError
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.model import Tenant


def test_a_list_that_does_not_fit_changes_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: (replace(ADA, gpus=9), BO)
    bench.pass_(supervisor, 30)
    assert bench.docker.pids() == before
    assert bench.heartbeats.waits == {
        "ada": "the list is refused: tenant 'ada': 9 GPUs are too many; there are 8 of 8 GPUs, "
        "which the tenants before it leave"
    }
    # The list before it stays in effect.
    bench.docker.die(name_of("cy"))
    bench.pass_(supervisor)
    assert bench.docker.pids().keys() == before.keys()


def test_a_list_that_cannot_be_decoded_is_a_wait_of_all(bench: Bench) -> None:
    supervisor = bench.settled()
    before = bench.docker.pids()
    bench.list = lambda: codec.decode('{"tenants": [], "color": 1}')
    bench.pass_(supervisor, 100)
    reason = "the list is refused: color is not a known key; the known keys are: tenants"
    assert bench.heartbeats.waits == dict.fromkeys(("ada", "bo", "cy"), reason)
    assert {"ada", "bo", "cy"} == {name for name, sent in bench.sent if sent.get("TenantWaiting")}
    bench.list = lambda: None
    bench.pass_(supervisor)
    assert (bench.heartbeats.waits, bench.docker.pids()) == ({}, before)


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


def test_a_failing_replacement_blocks_no_tenant(bench: Bench) -> None:
    a, b = tenant("a", host_port=8001, container_port=80), tenant("b", host_port=8002, container_port=80)
    bench.list = lambda: (a, b)
    supervisor = bench.supervisor()
    bench.pass_(supervisor)
    bench.volumes.fails = {"a"}
    bench.list = lambda: (replace(a, host_port=8003), replace(b, host_port=8001))
    bench.pass_(supervisor, 8)
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


def test_a_tenant_that_leaves_the_list_while_its_container_is_cleared_gives_its_volume_back(
    bench: Bench,
) -> None:
    first, second = tenant("ada", host_port=8001, container_port=80), BO
    bench.list = lambda: (first, second)
    supervisor = bench.supervisor()
    bench.pass_(supervisor)
    bench.at_once = False
    second = replace(BO, host_port=8001)
    bench.list = lambda: (replace(first, host_port=8002), second)
    bench.pass_(supervisor)  # each waits for the other's port
    bench.list = lambda: (second,)
    bench.pass_(supervisor)
    bench.at_once = True
    for work in bench.later:
        work()
    bench.pass_(supervisor)
    assert bench.volumes.released == ["ada"]
    assert [*bench.docker.pids()] == [*bench.volumes.sizes] == ["bo"]


def test_a_list_that_changes_while_a_tenant_starts_gives_its_gpus_to_no_other(bench: Bench) -> None:
    bench.list = lambda: (tenant("a", gpus=8),)
    supervisor = bench.supervisor()
    bench.at_once = False
    bench.pass_(supervisor, 3)  # the list is read; the start begins
    assert bench.later
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


def test_a_host_with_outdated_programs_starts_no_tenant_and_says_so(bench: Bench) -> None:
    bench.outdated = ("runc 1.1.5 is vulnerable (CVE-2025-31133); install 1.2.8 or newer",)
    supervisor = bench.supervisor()
    bench.pass_(supervisor, 130)
    assert bench.docker.pids() == {}
    assert bench.heartbeats.states[-1] == "waiting"
    assert bench.heartbeats.waits == dict.fromkeys(("ada", "bo", "cy"), bench.outdated[0])
    assert {values["TenantWaiting"] for name, values in bench.sent if name} == {1.0}
    bench.outdated = ()  # updated without a reboot
    bench.pass_(supervisor, 310)
    assert sorted(bench.docker.pids()) == ["ada", "bo", "cy"]
    assert bench.heartbeats.waits == {}


def test_an_images_volumes_are_directories_on_the_tenants_volume_empty_outside_of_data(bench: Bench) -> None:
    bench.image_volumes = ("/cache", "/data/db")
    bench.settled()
    [run] = [argv for argv in bench.docker.ran if argv[:2] == ["docker", "run"] and name_of("ada") in argv]
    volumes = bench.paths.image_volumes("ada")
    mounts = options(run, "--volume")
    database = bench.paths.volume_path("ada") / "declared/data+db"
    assert {f"{volumes}/cache:/cache", f"{database}:/data/db"} < {*mounts}
    [removed] = [argv for argv in bench.docker.ran if argv[0] == "rm" and str(volumes) in argv]
    assert not any(str(database).startswith(path) for path in removed[1:])
    places = [f"{volumes}/cache", str(database)]
    created = [argv for argv in bench.docker.ran if argv[0] == "install" and argv[-1] in places]
    assert [argv[-1] for argv in created] == places
    assert bench.docker.ran.index(removed) < bench.docker.ran.index(created[0])
    assert all(f"--owner={ADA.uid}" in argv for argv in created)


def test_a_container_with_an_anonymous_volume_is_removed_at_once(bench: Bench) -> None:
    bench.docker.mount_kinds = ["bind", "volume"]
    bench.pass_(bench.supervisor())
    assert bench.docker.pids() == {}
    assert "a volume on the host's disk" in bench.heartbeats.waits["ada"]


def test_a_secrets_values_reach_the_container_and_a_missing_secret_waits(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    values = {"ada": {"API_KEY": "s3cret"}}

    def read(one: Tenant) -> dict[str, str]:
        if one.secret is not None and one.name not in values:
            raise AgentError(f"secret {one.secret}: ResourceNotFoundException")
        return values.get(one.name, {})

    bench.secret_variables = read
    bench.list = lambda: (replace(ADA, secret="lab/ada"), BO, CY)
    supervisor = bench.settled()
    file, before = bench.paths.environment_file("ada"), bench.docker.pids()
    assert "API_KEY=s3cret\n" in file.read_text("utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in f"{bench.docker.ran} {bench.heartbeats.__dict__} {caplog.records}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"s3cret" in path.read_bytes()] == [file]
    values.clear()
    # Another secret is another container; the one before runs until its values are there.
    bench.list = lambda: (replace(ADA, secret="lab/new"), BO, CY)
    bench.pass_(supervisor, 20)
    assert bench.docker.pids() == before
    assert bench.heartbeats.waits["ada"].endswith("secret lab/new: ResourceNotFoundException")
    values["ada"] = {"API_KEY": "n3w"}
    bench.pass_(supervisor, 60)
    assert bench.docker.pids()["ada"] != before["ada"]
    assert "API_KEY=n3w\n" in file.read_text("utf-8")
    assert bench.heartbeats.waits == {}


def test_until_a_list_is_read_waits_are_unknown(bench: Bench) -> None:
    bench.list = outage
    bench.pass_(bench.supervisor())
    assert bench.heartbeats.waits is None


def test_a_changed_tenant_is_tried_at_once(bench: Bench) -> None:
    bench.docker.refuses = {"bad"}
    bench.list = lambda: (tenant("a", image="bad"),)
    supervisor = bench.supervisor()
    bench.pass_(supervisor, 100)
    bench.list = lambda: (tenant("a"),)
    bench.pass_(supervisor, 10)
    assert list(bench.docker.pids()) == ["a"]
