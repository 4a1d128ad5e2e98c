"""The commands on three real instance types, verbatim, and the isolation of tenants' containers."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.agent.names import RUN_DIR, UNIT_TENANT_SUPERVISOR
from infra.catalogue import host_shapes
from tests.tenants.docker_double import options
from tests.tenants.hosts import tenant
from userdata.agent.tenants import weights
from userdata.agent.tenants.host import container, firewall
from userdata.agent.tenants.host.container import TenantPaths
from userdata.agent.tenants.host.steps import (
    DesiredTenant,
    TenantContainer,
    TenantStep,
    exclusive_resources,
    steps,
)
from userdata.agent.tenants.model import Slice, Tenant
from userdata.agent.tenants.plan import plan

GOLDEN = Path(__file__).parent / "golden"
UNITS = Path(container.__file__).parents[2] / "units"
PLACE = TenantPaths("10.0.1.5", RUN_DIR, Path("/dltraining/tenants"), Path("/var/run/cdi"))

HOSTS: dict[str, tuple[Tenant, ...]] = {
    "p4d.24xlarge": (
        tenant("vision", uid=2001, cpus=24, cpu_mode="pinned", gpus=4, memory_gib=300),
        tenant("speech", uid=2002, cpus=32, gpus=2, memory_gib=400, host_port=8001, container_port=8888),
        tenant(
            "papers",
            uid=2003,
            cpus=8,
            cpu_mode="capped",
            memory_gib=64,
            host_port=8002,
            container_port=80,
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


def commands(name: str) -> list[list[str]]:
    found = plan(host_shapes.shape(name), HOSTS[name]).slices
    said = []
    for one in HOSTS[name]:
        part = found[one.name]
        gpus = [f"GPU-{gpu}" for gpu in part.gpus]
        said.append(container.network_command(one))
        said.append(container.run_command(one, part, gpus, weights.shares_for(part.weight), PLACE))
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
        assert f"/dltraining/tenants/{one.name}/tmp:/tmp" in options(argv, "--volume")
        assert not {"--privileged", "--gpus", "host", "--cap-add", "--pid", "--ipc"} & {*argv}
        assert all(one.startswith(("10.0.1.5:", "127.0.0.1:")) for one in options(argv, "--publish"))
        assert "s3cret" not in " ".join(argv)


def test_an_environment_cannot_ask_for_gpus_or_name_another_tenant() -> None:
    cheat = tenant(
        "cy", environment={"NVIDIA_VISIBLE_DEVICES": "all", "GPU_SPOT_TENANT": "ada", "HOME": "/log"}
    )
    environment = container.environment(cheat, ())
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    own = container.environment(cheat, ("GPU-a", "GPU-b"))
    assert own["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    [device] = container.cdi_specification("cy", ("GPU-a", "GPU-b"))["devices"]
    assert device["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"]}
    assert environment["GPU_SPOT_TENANT"] == "cy"
    assert environment["HOME"] == "/log"


def test_another_container_is_needed_for_all_but_cpus() -> None:
    one = tenant("ada", uid=2001, gpus=1)
    part = Slice((1, 2), 80, 2**32, gpus=(0,))

    def spec(
        changed: Tenant = one, slice_: Slice = part, gpus: tuple[str, ...] = ("0",), shares: int = 9
    ) -> str:
        return container.spec_hash(container.run_command(changed, slice_, gpus, shares, PLACE))

    assert spec(slice_=replace(part, cpus=(4,), weight=3, cpu_limit=2)) == spec(shares=77) == spec()
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
    text = firewall.rules([2002, 2001])
    assert text.startswith(f"table inet {firewall.TABLE}\ndelete table inet {firewall.TABLE}\ntable inet")
    assert 'iifname "gst-*" drop' in text
    assert 'iifname "gst-*" oifname "gst-*" drop' in text
    for address in ("169.254.0.0/16", "fd00:ec2::/32", "fe80::/10"):
        assert any(address in line and line.endswith("drop") for line in text.splitlines())
    assert text.count("meta skuid { 2001, 2002 }") == 2
    assert "chain output" not in firewall.rules([])
    assert len(container.bridge_of(tenant("x", uid=59_999))) <= 15


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


def wanted(one: Tenant, part: Slice, spec: str = "1") -> DesiredTenant:
    return DesiredTenant(one, part, spec, 100, container.cpu_quota(part), ())


def found(one: Tenant, part: Slice, spec: str = "1", *, is_running: bool = True) -> TenantContainer:
    mine = exclusive_resources(part, one.uid, one.host_port)
    quota = container.cpu_quota(part)
    return TenantContainer("id", one.name, spec, part, is_running, 100, part.cpuset, quota, 7, "now", mine)


ADA, BO = tenant("ada", host_port=8001, container_port=80), tenant("bo")
ONE, OTHER = Slice((1, 2), 80, 2**32, gpus=(0,)), Slice((3,), 80, 2**32, gpus=(1,))


def test_nothing_is_done_where_nothing_differs() -> None:
    both = {"ada": wanted(ADA, ONE), "bo": wanted(BO, OTHER)}
    here = {"ada": found(ADA, ONE), "bo": found(BO, OTHER)}
    assert steps(both, here, both, ()) == ()
    assert steps(both, here | {"bo": found(BO, OTHER, "0")}, both, ()) == (TenantStep("start", "bo"),)
    assert steps(both, here | {"bo": found(BO, OTHER, "0")}, both, {"bo"}) == ()
    assert steps(both, here | {"bo": found(BO, OTHER, is_running=False)}, both, ()) == (
        TenantStep("start", "bo"),
    )
    moved = {"ada": wanted(ADA, replace(ONE, cpus=(1,))), "bo": wanted(BO, OTHER)}
    assert steps(moved, here, both, ()) == (TenantStep("update", "ada"),)
    capped = {"ada": wanted(ADA, replace(ONE, cpu_limit=2)), "bo": wanted(BO, OTHER)}
    assert steps(capped, here, both, ()) == (TenantStep("update", "ada"),)


@pytest.mark.parametrize(
    ("heir", "part"),
    [
        (BO, ONE),  # its GPU
        (replace(BO, host_port=8001, container_port=1), OTHER),
        (replace(BO, uid=ADA.uid), OTHER),
    ],
)
def test_a_tenant_that_needs_a_resource_of_another_container_waits(heir: Tenant, part: Slice) -> None:
    here = {"ada": found(ADA, ONE)}
    assert steps({"bo": wanted(heir, part)}, here, (), ()) == (TenantStep("end", "ada"),)
    assert steps({"bo": wanted(heir, part)}, here, (), {"ada"}) == ()
    assert steps({"bo": wanted(heir, part)}, {}, (), ()) == (TenantStep("start", "bo"),)


def test_leftovers_of_a_tenant_without_a_container_are_removed_too() -> None:
    assert steps({}, {}, {"old"}, ()) == (TenantStep("end", "old"),)
