"""The commands on three real instance types, verbatim, and the isolation of tenants' containers."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import subprocess
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.names import RUN_DIR, UNIT_TENANT_SUPERVISOR
from docs.site.stage import ROOT
from infra.catalogue import host_shapes
from infra.components.tenants.tenancy import forwarding, shell
from tests import models
from tests.tenants.docker_double import options
from tests.tenants.hosts import tenant
from userdata.agent.tenants import mig, weights
from userdata.agent.tenants.host import container, firewall, shape
from userdata.agent.tenants.host.container import TenantDisks, TenantPaths
from userdata.agent.tenants.host.steps import (
    DesiredTenant,
    TenantContainer,
    TenantWork,
    exclusive_resources,
    reconcile,
)
from userdata.agent.tenants.model import UIDS_APART, HostShape, MigInstance, Slice, Tenant
from userdata.agent.tenants.plan import plan
from userdata.agent.tenants.throughput import ASSUMED, IMAGE_DISK, Bandwidth, bounds_of, parse_bandwidth

GOLDEN = Path(__file__).parent / "golden"
UNITS = Path(container.__file__).parents[2] / "units"
PLACE = TenantPaths("10.0.1.5", RUN_DIR, Path("/dltraining/tenants"), Path("/var/run/cdi"))
DISKS = TenantDisks(volume="/dev/nvme1n1", image="/dev/nvme0n1")

HOSTS: dict[str, tuple[Tenant, ...]] = {
    "p4d.24xlarge": (
        tenant("vision", uid=2001, cpus=24, cpu_mode="pinned", gpus=4, memory_gib=300),
        tenant("speech", uid=2002, cpus=32, gpus=2, memory_gib=400, host_port=8001, container_port=8888),
        tenant(
            "papers", uid=2003, cpus=8, cpu_mode="capped", memory_gib=64, host_port=8002, container_port=80
        ),
    ),
    "g5.12xlarge": (
        tenant("vision", uid=2001, cpus=16, gpus=2, memory_gib=64),
        tenant("speech", uid=2002, cpus=16, gpu_ids=(3,), memory_gib=64, command=("serve", "--all")),
    ),
    "g4dn.12xlarge": (
        tenant("vision", uid=2001, cpus=8, cpu_mode="pinned", gpus=1, memory_gib=32),
        tenant("speech", uid=2002, cpus=30, gpus=3, memory_gib=100, environment={"TOKEN": "s3cret"}),
    ),
}


def planned(one: Tenant, part: Slice, gpus: tuple[str, ...]) -> DesiredTenant:
    spec = container.spec_of(one, part, gpus, PLACE)
    shares = weights.shares_for(part.weight)
    bounds = bounds_of(one.cpus, 48, Bandwidth(5_000_000_000, 2_000_000_000))
    return DesiredTenant(one, part, spec, shares, container.cpu_quota(part), gpus, bounds)


def commands(name: str) -> list[list[str]]:
    found = plan(host_shapes.shape(name), HOSTS[name]).slices
    said = []
    for one in HOSTS[name]:
        part = found[one.name]
        gpus = tuple(f"GPU-{gpu}" for gpu in part.gpus)
        said.append(container.network_command(one))
        said.append(container.run_command(planned(one, part, gpus), gpus, PLACE, DISKS))
    return said


@pytest.mark.parametrize("name", HOSTS)
def test_command_lines_of_real_types(name: str) -> None:
    text = "\n".join(shlex.join(argv).replace(" --", " \\\n  --") for argv in commands(name)) + "\n"
    assert text == (GOLDEN / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", HOSTS)
def test_each_container_is_confined(name: str) -> None:
    for one, argv in zip(HOSTS[name], commands(name)[1::2], strict=True):
        assert "--read-only" in argv
        assert options(argv, "--cap-drop") == ["ALL"]
        assert options(argv, "--security-opt") == ["no-new-privileges"]
        assert options(argv, "--user") == [f"{one.uid}:{one.uid}"]
        assert options(argv, "--network") == [container.name_of(one.name)]
        assert options(argv, "--memory") == options(argv, "--memory-swap") == [str(one.memory_gib * 2**30)]
        devices = options(argv, "--device")
        assert len(devices) == (one.gpus or len(one.gpu_ids) or -1) + 1
        # The agent's own device comes last: its variable replaces that of NVIDIA's specification.
        assert devices[-1:] == [f"gpu-spot/tenant={one.name}"][: len(devices)]
        limit = 100_000 * one.cpus if one.cpu_mode == "capped" else -1
        assert options(argv, "--cpu-quota") == [str(limit)]
        assert "--tmpfs" not in argv
        for kind in ("read", "write"):
            [volume, *image] = options(argv, f"--device-{kind}-bps")
            assert volume == f"/dev/nvme1n1:{2_000_000_000 * one.cpus // 48}"
            assert len(image) == (kind == "read")
        assert f"/dltraining/tenants/{one.name}/tmp:/tmp" in options(argv, "--volume")
        assert not {"--privileged", "--gpus", "host", "--cap-add", "--pid", "--ipc"} & {*argv}
        assert all(one.startswith(("10.0.1.5:", "127.0.0.1:")) for one in options(argv, "--publish"))
        assert "s3cret" not in " ".join(argv)


def test_an_environment_cannot_ask_for_gpus_or_name_another_tenant() -> None:
    cheat = tenant(
        "cy", environment={"NVIDIA_VISIBLE_DEVICES": "all", "GPU_SPOT_TENANT": "ada", "HOME": "/log"}
    )
    environment = container.environment(cheat, (), {"NVIDIA_VISIBLE_DEVICES": "all"})
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    own = container.environment(cheat, ("GPU-a", "GPU-b"), {})
    assert own["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    [device] = container.cdi_specification("cy", ("GPU-a", "GPU-b"))["devices"]
    assert device["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"]}
    assert environment["GPU_SPOT_TENANT"] == "cy"
    assert environment["HOME"] == "/log"


def test_another_container_is_needed_for_all_but_cpus() -> None:
    one = tenant("ada", uid=2001, gpus=1)
    part = Slice((1, 2), 80, 2**32, gpus=(0,))

    def spec(changed: Tenant = one, slice_: Slice = part, gpus: tuple[str, ...] = ("0",)) -> str:
        return container.spec_of(changed, slice_, gpus, PLACE)

    assert spec(slice_=replace(part, cpus=(4,), weight=3, cpu_limit=2)) == spec()
    others = {
        spec(replace(one, image="other")),
        spec(replace(one, command=("x",))),
        spec(replace(one, environment={"A": "1"})),
        spec(replace(one, uid=2009)),
        spec(replace(one, host_port=8001, container_port=80)),
        spec(slice_=replace(part, memory_bytes=2**33)),
        spec(gpus=("1",)),
        spec(),
    }
    assert len(others) == 8


def test_the_firewall_rules_are_one_transaction() -> None:
    text = firewall.rules({2002: 250_000_000, 2001: 10**9})
    assert text.startswith(f"table inet {firewall.TABLE}\ndelete table inet {firewall.TABLE}\ntable inet")
    assert 'iifname "gst-*" drop' in text
    assert 'iifname "gst-*" oifname "gst-*" drop' in text
    for address in ("169.254.0.0/16", "fd00:ec2::/32", "fe80::/10"):
        assert any(address in line and line.endswith("drop") for line in text.splitlines())
    assert text.count("meta skuid { 2001, 2002 }") == 2
    assert "chain output" not in firewall.rules({})
    assert len(container.bridge_of(59_999)) <= 15
    for direction in ("iifname", "oifname"):
        limit = f'{direction} "gst-2002" limit rate over 250000000 bytes/second drop'
        assert text.count(limit) == 1
    # What may not pass at all is dropped before it counts.
    assert text.index('"gst-*" oifname "gst-*" drop') < text.index("limit rate")


def test_no_rate_is_above_what_the_kernel_counts() -> None:
    """Bytes times nanoseconds in 64 bits: of 400 GB/s, as of 8 GPUs with 3,200 Gbit/s, a half is too much."""
    assert 'iifname "gst-2002" ct state new ct count over 4096 drop' in firewall.rules({2002: 1})
    assert "limit rate over 10000000000 bytes/second" in firewall.rules({2001: 2 * 10**11})
    assert 10**10 * 10**9 < 2**64


def test_bounds_of_all_tenants_together_are_the_machines() -> None:
    machine = Bandwidth(network=5_000_000_000, volumes=2_000_000_000)
    bounds = [bounds_of(cpus, 48, machine) for cpus in (30, 12, 6)]
    assert sum(one.network for one in bounds) <= machine.network
    assert sum(one.volume for one in bounds) <= machine.volumes
    assert sum(one.image for one in bounds) <= IMAGE_DISK
    assert [one.network for one in bounds] == [3_125_000_000, 1_250_000_000, 625_000_000]


def test_bandwidth_that_ec2_does_not_say_is_the_least_of_any_type() -> None:
    cards = [{"BaselineBandwidthInGbps": 100.0}, {"BaselineBandwidthInGbps": 100.0}]
    known = {
        "NetworkInfo": {"NetworkCards": cards},
        "EbsInfo": {"EbsOptimizedInfo": {"BaselineThroughputInMBps": 2375.0}},
    }
    assert parse_bandwidth(known) == Bandwidth(25_000_000_000, 2_375_000_000)
    assert parse_bandwidth({"NetworkInfo": {"NetworkCards": [{}]}, "EbsInfo": {}}) == ASSUMED
    assert parse_bandwidth({}) == ASSUMED


def test_a_disk_is_bounded_as_a_whole(tmp_path: Path) -> None:
    sys, dev = tmp_path / "sys", tmp_path / "dev"
    number = tmp_path.stat().st_dev
    block = sys / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    assert shape.disk_of(tmp_path, sys, dev) == ""
    partition = sys / "devices/nvme0n1/nvme0n1p1"
    partition.mkdir(parents=True)
    block.parent.mkdir(parents=True)
    block.symlink_to(partition)
    dev.mkdir()
    for name in ("nvme0n1", "nvme0n1p1"):
        (dev / name).touch()
    assert shape.disk_of(tmp_path, sys, dev) == "/dev/nvme0n1p1"
    (partition / "partition").write_text("1")
    assert shape.disk_of(tmp_path, sys, dev) == "/dev/nvme0n1"
    assert shape.disk_of(tmp_path / "missing", sys, dev) == ""
    (dev / "nvme0n1").unlink()  # Docker would refuse to start the container
    assert shape.disk_of(tmp_path, sys, dev) == ""


def test_the_unit_leaves_tenants_running_and_is_the_last_to_be_killed() -> None:
    unit = (UNITS / UNIT_TENANT_SUPERVISOR).read_text("utf-8").splitlines()
    for line in (
        "ExecStart=/opt/gpu-spot/python -S -m userdata.agent landlord",
        "KillMode=mixed",
        "OOMScoreAdjust=-500",
        "Restart=on-failure",
        "RestartPreventExitStatus=77 78",
    ):
        assert line in unit
    # Bound to Docker it would be stopped with it, and its tenants never started again.
    assert not [line for line in unit if line.startswith(("Requires=docker", "BindsTo=", "PartOf="))]


def test_tenants_have_addresses_of_their_own_outside_of_private_networks() -> None:
    networks = {uid: ipaddress.ip_network(container.subnet_of(uid)) for uid in (2000, 2001, 34_767, 59_999)}
    assert len({*networks.values()}) == len(networks)
    for network in networks.values():
        assert network.subnet_of(container.SUBNETS)
        assert len(list(network.hosts())) == 2  # the gateway and the container
    # Source: RFC 1918, and the VPC user guide, "VPC CIDR blocks": what VPCs and Docker's defaults are in.
    for private in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"):
        assert not container.SUBNETS.overlaps(ipaddress.ip_network(private))
    assert container.subnet_of(2000) == container.subnet_of(2000 + UIDS_APART)


def wanted(one: Tenant, part: Slice, spec: str = "1") -> DesiredTenant:
    return DesiredTenant(one, part, spec, 100, container.cpu_quota(part), (), bounds_of(1, 2, ASSUMED))


def found(one: Tenant, part: Slice | None, spec: str = "1", *, is_running: bool = True) -> TenantContainer:
    cpuset, quota = (part.cpuset, container.cpu_quota(part)) if part else ("0", -1)
    port = None if one.host_port is None else str(one.host_port)
    return TenantContainer(
        "id", one.name, spec, part, is_running, 100, cpuset, quota, 7, "now", str(one.uid), port
    )


def steps(
    desired: dict[str, DesiredTenant],
    containers: dict[str, TenantContainer],
    present: Collection[str] = (),
    work: TenantWork | None = None,
) -> tuple[tuple[str, str], ...]:
    done = reconcile(desired, containers, present, work or TenantWork(), HOST)
    return tuple((step.kind, step.tenant) for step in done.steps)


MIG = mig.profiles("A100", 40)
HOST = HostShape((), 24, mig=MIG)
ADA, BO = tenant("ada", host_port=8001, container_port=80), tenant("bo")
ONE, OTHER = Slice((1, 2), 80, 2**32, gpus=(0,)), Slice((3,), 80, 2**32, gpus=(1,))


def test_nothing_is_done_where_nothing_differs() -> None:
    both = {"ada": wanted(ADA, ONE), "bo": wanted(BO, OTHER)}
    here = {"ada": found(ADA, ONE), "bo": found(BO, OTHER)}
    assert steps(both, here, both) == ()
    assert steps(both, here | {"bo": found(BO, OTHER, "0")}, both) == (("start", "bo"),)
    assert steps(both, here | {"bo": found(BO, OTHER, "0")}, both, TenantWork(paused={"bo"})) == ()
    assert steps(both, here | {"bo": found(BO, OTHER, is_running=False)}, both) == (("start", "bo"),)
    moved = {"ada": wanted(ADA, replace(ONE, cpus=(1,))), "bo": wanted(BO, OTHER)}
    assert steps(moved, here, both) == (("update", "ada"),)
    capped = {"ada": wanted(ADA, replace(ONE, cpu_limit=2)), "bo": wanted(BO, OTHER)}
    assert steps(capped, here, both) == (("update", "ada"),)


def test_a_container_that_is_to_be_replaced_leaves_the_cpus_of_others_first() -> None:
    both = {"ada": wanted(ADA, replace(ONE, cpus=(4,))), "bo": wanted(BO, OTHER)}
    here = {"ada": found(ADA, ONE, "0"), "bo": found(BO, OTHER)}
    assert steps(both, here) == (("update", "ada"), ("start", "ada"))
    assert steps(both, here, (), TenantWork(in_progress={"ada"})) == (("update", "ada"),)


@pytest.mark.parametrize(
    ("heir", "part"),
    [
        (BO, ONE),  # its GPU
        (BO, replace(ONE, gpus=(), mig=MigInstance(0, "1g.5gb", 6))),  # a part of it
        (replace(BO, host_port=8001, container_port=1), OTHER),
        (replace(BO, uid=ADA.uid), OTHER),
    ],
)
def test_a_tenant_that_needs_a_resource_of_another_container_waits(heir: Tenant, part: Slice) -> None:
    here = {"ada": found(ADA, ONE)}
    assert steps({"bo": wanted(heir, part)}, here) == (("end", "ada"),)
    assert steps({"bo": wanted(heir, part)}, here, (), TenantWork(paused={"ada"})) == ()
    assert steps({"bo": wanted(heir, part)}, {}) == (("start", "bo"),)
    starting = TenantWork(in_progress={"ada"}, starting={"ada": wanted(ADA, ONE)})
    assert steps({"bo": wanted(heir, part)}, {}, (), starting) == ()


def test_memory_is_given_only_once_its_tenants_have_less() -> None:
    """Of 19 GiB for tenants, ``ada`` has 16 and is to have 4, ``bo`` the other way round."""
    large, small = replace(ONE, memory_bytes=16 * 2**30), replace(OTHER, memory_bytes=2 * 2**30)
    grown, shrunk = replace(small, memory_bytes=12 * 2**30), replace(large, memory_bytes=4 * 2**30)
    here = {"ada": found(ADA, large), "bo": found(BO, small)}
    desired = {"ada": wanted(ADA, shrunk, "2"), "bo": wanted(BO, grown, "2")}
    assert steps(desired, here) == (("start", "ada"),)
    assert steps(desired, here, (), TenantWork(paused={"ada"})) == ()  # its image cannot be pulled
    assert steps(desired, here, (), TenantWork(paused={"ada"}, failing={"ada"})) == (("clear", "ada"),)
    assert steps(desired, here | {"ada": found(ADA, large, is_running=False)})[1:] == (("start", "bo"),)
    assert steps({"bo": desired["bo"]}, here) == (("end", "ada"),)
    launching = TenantWork(in_progress={"ada"}, starting={"ada": wanted(ADA, large)})
    assert steps(desired, {"bo": here["bo"]}, (), launching) == ()
    assert steps(desired, {}) == (("start", "ada"), ("start", "bo"))


def test_a_waiting_tenant_says_for_what() -> None:
    heir = replace(BO, host_port=8001, container_port=1)
    done = reconcile({"bo": wanted(heir, OTHER)}, {"ada": found(ADA, ONE)}, (), TenantWork(), HOST)
    assert done.waits == {"bo": "waits for port 8001 of 'ada'"}
    done = reconcile({"bo": wanted(BO, ONE)}, {"ada": found(ADA, None)}, (), TenantWork(), HOST)
    assert done.waits == {"bo": "waits for GPU 0 of 'ada'"}  # which GPUs it has is unknown


def test_parts_of_one_gpu_are_apart_by_their_memory_slices() -> None:
    three, one = MigInstance(0, "3g.20gb", 4), MigInstance(0, "1g.5gb", 3)
    parts = [replace(ONE, gpus=(), mig=part) for part in (three, one, replace(one, start=6))]
    sets = [exclusive_resources(part, 2000 + n, None, MIG) for n, part in enumerate(parts)]
    assert not sets[0] & sets[1]
    assert sets[0] & sets[2]
    # A profile that this host does not know counts as the whole GPU.
    unknown = replace(ONE, gpus=(), mig=MigInstance(0, "1g.99gb", 0))
    assert exclusive_resources(unknown, 2009, None, MIG) & sets[1]


@pytest.mark.parametrize("resource", ["port", "uid", "GPU", "part"])
def test_of_two_tenants_that_exchange_a_resource_the_first_by_name_is_stopped_first(resource: str) -> None:
    a, b, one, other = tenant("a", uid=2001), tenant("b", uid=2002), replace(ONE, gpus=()), OTHER
    match resource:
        case "port":
            a, b = (replace(t, host_port=8000 + t.uid, container_port=80) for t in (a, b))
            new_a, new_b = replace(a, host_port=b.host_port), replace(b, host_port=a.host_port)
        case "uid":
            new_a, new_b = replace(a, uid=b.uid), replace(b, uid=a.uid)
        case "GPU":
            one, other, new_a, new_b = replace(OTHER, gpus=(0,)), OTHER, a, b
        case _:
            one = replace(ONE, gpus=(), mig=MigInstance(0, "3g.20gb", 4))
            other, new_a, new_b = replace(one, mig=MigInstance(0, "3g.20gb", 0)), a, b
    swapped = resource in ("GPU", "part")
    desired = {
        "a": wanted(new_a, other if swapped else one, "new"),
        "b": wanted(new_b, one if swapped else other, "new"),
    }
    here = {"a": found(a, one), "b": found(b, other)}
    assert steps(desired, here) == (("clear", "a"),)
    assert steps(desired, here, (), TenantWork(in_progress={"a"})) == (("clear", "b"),)
    del here["a"]
    assert steps(desired, here) == (("start", "b"),)
    here["b"] = found(new_b, desired["b"].part, "new")
    assert steps(desired, here) == (("start", "a"),)


def test_a_tenant_in_a_chain_waits_until_the_one_before_it_has_moved() -> None:
    a, b = tenant("a", uid=2001, host_port=8001, container_port=80), tenant("b", uid=2002)
    new_a = replace(a, host_port=8005)
    new_b = replace(b, host_port=8001, container_port=80)
    desired = {"a": wanted(new_a, replace(ONE, gpus=()), "new"), "b": wanted(new_b, OTHER, "new")}
    here = {"a": found(a, replace(ONE, gpus=())), "b": found(b, OTHER)}
    assert steps(desired, here) == (("start", "a"),)
    # Its replacement fails repeatedly: it does not keep the other one waiting.
    failing = TenantWork(paused={"a"}, failing={"a"})
    assert steps(desired, here, (), failing) == (("clear", "a"),)
    assert steps(desired, here, (), TenantWork(paused={"a"})) == ()
    # What has ended runs nothing that could be waited for.
    ended = here | {"a": found(a, replace(ONE, gpus=()), is_running=False)}
    assert steps(desired, ended, (), TenantWork(paused={"a"})) == (("clear", "a"),)


def test_a_container_with_an_unreadable_slice_is_replaced() -> None:
    assert steps({"bo": wanted(BO, OTHER)}, {"bo": found(BO, None)})[-1] == ("start", "bo")


def test_leftovers_of_a_tenant_without_a_container_are_removed_too() -> None:
    assert steps({}, {}, {"old"}) == (("end", "old"),)


DOCUMENTS: dict[str, dict[str, Any]] = {
    "gpu-spot-shared-lab-vision-1a2b3c4": forwarding("vision", 8001),
    "gpu-spot-shared-lab-vision.shell-1a2b3c4": shell("vision"),
}
COMMANDS = re.findall(r"^aws ssm start-session .*$", (ROOT / "docs/shared-hosts.md").read_text(), re.M)


def request(name: str) -> dict[str, Any]:
    """Return the request of the page's command for a document, as the AWS CLI reads it."""
    [line] = [line for line in COMMANDS if f"{name[:-7]}… " in f"{line} "]
    argv = shlex.split(line.replace("i-…", "i-0123456789abcdef0").replace("-…", "-1a2b3c4"))
    said = dict(zip(argv[3::2], argv[4::2], strict=True))
    asked = {"Target": said["--target"], "DocumentName": said["--document-name"]}
    if parameters := said.get("--parameters"):
        return {**asked, "Parameters": {k: [v] for k, v in (parameters.split("="),)}}
    return asked


def properties(document: dict[str, Any], given: dict[str, list[str]]) -> dict[str, Any]:
    """Fill in a document's parameters as Session Manager does; a wrong one is an ``AssertionError``."""
    declared, text = document.get("parameters", {}), json.dumps(document["properties"])
    assert given.keys() <= declared.keys()
    for name, parameter in declared.items():
        [value] = given.get(name, [parameter["default"]])
        assert re.fullmatch(parameter["allowedPattern"], value)
        text = text.replace("{{ " + name + " }}", value)
    return dict(json.loads(text))


def test_the_pages_commands_start_the_stacks_documents() -> None:
    assert len(COMMANDS) == 2
    sessions = []
    for name, document in DOCUMENTS.items():
        asked = request(name)
        models.check("ssm", "start_session", asked)
        sessions.append(properties(document, asked.get("Parameters", {})))
    port, _ = sessions
    assert port == {"portNumber": "8001", "type": "LocalPortForwarding", "localPortNumber": "8888"}
    [document, _] = DOCUMENTS.values()
    for wrong in ({"portNumber": ["22"]}, {"localPortNumber": ["8888; id"]}):
        with pytest.raises(AssertionError):
            properties(document, wrong)


def test_a_user_has_a_shell(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\ntest "$*" = "exec --interactive --tty gpu-spot-tenant-vision sh" && exec sh\n'
    )
    docker.chmod(0o755)
    command = properties(shell("vision"), {})["linux"]["commands"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], input="echo of vision", env=environment, capture_output=True, text=True
    )
    assert done.stdout == "of vision\n", done.stderr
