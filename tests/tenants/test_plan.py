"""Plans of shared hosts: no overlaps, no moves for a new tenant, and rejections that name their cause."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from moto.ec2.models.instance_types import INSTANCE_TYPES

from infra.catalogue import host_shapes
from tests.measured import slices
from tests.tenants.hosts import host, hosts, tenant, tenant_lists
from tests.tenants.laws import moved, overlaps, oversold
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tenants import codec, weights
from userdata.agent.tenants.model import HostShape, MigInstance, PlanRefusedError, Tenant
from userdata.agent.tenants.plan import plan


@given(hosts, tenant_lists())
def test_an_accepted_plan_neither_oversells_nor_overlaps_and_a_refused_one_names_the_first_that_does_not_fit(
    machine: HostShape, tenants: list[Tenant]
) -> None:
    try:
        found = plan(machine, tenants)
    except PlanRefusedError as refused:
        refusal = str(refused)
        named = re.fullmatch(r"tenant '(.+?)': .+; .+", refusal) or pytest.fail(refusal)
        # Those before it fit; with it they do not.
        first = next(n for n in range(len(tenants)) if not _fits(machine, tenants[: n + 1]))
        assert tenants[first].name == named[1]
    else:
        assert oversold(machine, tenants, found) == []
        assert overlaps(machine, found) == []
        shuffled = random.Random(1).sample(tenants, len(tenants))
        assert plan(machine, shuffled).slices == found.slices  # the list's order says nothing


@given(hosts, tenant_lists())
def test_what_fits_by_plain_sums_is_not_refused(machine: HostShape, tenants: list[Tenant]) -> None:
    once = list({one.name: replace(one, uid=2000 + n) for n, one in enumerate(tenants)}.values())
    plain = [replace(one, gpu_ids=(), mig=None, host_port=None, container_port=None) for one in once]
    plain = [replace(one, cpus=2 * one.cpus) for one in plain]
    cpus = machine.cpus - sum(map(len, machine.reserved_cores))
    fits = (
        sum(one.cpus for one in plain) <= cpus
        and sum(one.memory_gib for one in plain) <= machine.tenants_memory_gib
        and sum(one.gpus for one in plain) <= len(machine.gpus)
    )
    assert _fits(machine, plain) == fits


def _fits(machine: HostShape, tenants: list[Tenant]) -> bool:
    try:
        plan(machine, tenants)
    except PlanRefusedError:
        return False
    return True


@given(hosts, st.lists(tenant_lists(), min_size=2, max_size=4))
def test_what_is_held_changes_neither_what_is_accepted_nor_its_laws(
    machine: HostShape, history: list[list[Tenant]]
) -> None:
    held = {}
    for tenants in history:
        if not _fits(machine, tenants):
            with pytest.raises(PlanRefusedError):
                plan(machine, tenants, held)
            continue
        found = plan(machine, tenants, held)
        assert oversold(machine, tenants, found) == []
        assert overlaps(machine, found) == []
        assert plan(machine, tenants, found.slices) == found
        held = dict(found.slices)


@given(hosts, tenant_lists(), tenant_lists())
def test_no_tenant_moves_if_another_is_added_or_removed(
    machine: HostShape, tenants: list[Tenant], others: list[Tenant]
) -> None:
    assume(_fits(machine, tenants))
    before = plan(machine, tenants).slices
    # Without ids and MIG instances, which may need a GPU of another tenant.
    plain = [one for one in others if not one.gpu_ids and one.mig is None and one.name not in before]
    for after in ([*tenants, *plain], tenants[1:]):
        if _fits(machine, after):
            assert moved(before, plan(machine, after, before).slices, {t.name for t in after}) == []


def lines(shape: HostShape, tenants: list[Tenant]) -> list[str]:
    """A plan as text: who runs where, with what."""
    found = plan(shape, tenants)
    return [
        f"{name}: CPUs {one.cpuset} weight {one.weight} memory {one.memory_bytes >> 30} GPUs {list(one.gpus)}"
        + (f" part {one.mig.profile}@{one.mig.gpu}:{one.mig.start}" if one.mig else "")
        for name, one in found.slices.items()
    ]


GOLDEN: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    # 48 CPUs on one node; the first core, 0 and 24, is the system's.
    "g4dn.12xlarge": (
        [
            {"name": "a", "cpus": 8, "cpu_mode": "pinned", "gpus": 1},
            {"name": "b", "cpus": 16, "gpus": 2, "memory_gib": 100},
            {"name": "c", "cpus": 22},
        ],
        [
            "a: CPUs 1-4,25-28 weight 320 memory 4 GPUs [2]",
            "b: CPUs 5-23,29-47 weight 640 memory 100 GPUs [0, 1]",
            "c: CPUs 5-23,29-47 weight 880 memory 4 GPUs []",
        ],
    ),
    "g5.12xlarge": (
        [
            {"name": "z", "cpus": 12, "cpu_mode": "pinned", "gpu_ids": (0, 2)},
            {"name": "a", "cpus": 12, "cpu_mode": "pinned", "gpus": 1},
            {"name": "m", "cpus": 2, "gpus": 1},
        ],
        [
            "z: CPUs 7-12,31-36 weight 480 memory 4 GPUs [0, 2]",
            "a: CPUs 1-6,25-30 weight 480 memory 4 GPUs [1]",
            "m: CPUs 13-23,37-47 weight 80 memory 4 GPUs [3]",
        ],
    ),
    # Two nodes: cores 0 to 23 with GPUs 0 to 3, cores 24 to 47 with GPUs 4 to 7; two cores are the system's.
    "p4d.24xlarge": (
        [
            {"name": "big", "cpus": 48, "cpu_mode": "pinned", "gpus": 4, "memory_gib": 500},
            {"name": "part", "cpus": 4, "mig": "3g.20gb"},
            {"name": "small", "cpus": 4, "mig": "1g.5gb"},
            {"name": "near", "cpus": 8, "cpu_mode": "pinned", "gpu_ids": (1,)},
            {"name": "rest", "cpus": 20, "memory_gib": 400},
        ],
        [
            # Its four GPUs fill a node, and its cores are that node's, all 24.
            "big: CPUs 24-47,72-95 weight 1920 memory 500 GPUs [4, 5, 6, 7]",
            "part: CPUs 6-23,54-71 weight 160 memory 4 GPUs [] part 3g.20gb@3:4",
            "small: CPUs 6-23,54-71 weight 160 memory 4 GPUs [] part 1g.5gb@3:3",
            "near: CPUs 2-5,50-53 weight 320 memory 4 GPUs [1]",
            "rest: CPUs 6-23,54-71 weight 800 memory 400 GPUs []",
        ],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_plans_of_real_types(name: str) -> None:
    requests, expected = GOLDEN[name]
    assert lines(host_shapes.shape(name), [tenant(**request) for request in requests]) == expected


@pytest.mark.parametrize("name", host_shapes.TYPES)
def test_a_type_has_what_ec2_says(name: str) -> None:
    described = INSTANCE_TYPES[name]
    shape = host_shapes.shape(name)
    assert shape.cpus == described["VCpuInfo"]["DefaultVCpus"]
    assert shape.threads == described["VCpuInfo"]["DefaultThreadsPerCore"]
    [gpu] = described["GpuInfo"]["Gpus"]
    assert len(shape.gpus) == gpu["Count"]
    # What the kernel shows is less than what is sold, and not by much.
    assert 0.95 <= shape.memory_gib * 1024 / described["MemoryInfo"]["SizeInMiB"] < 1
    assert sorted(gpu for node in shape.nodes for gpu in node.gpus) == list(shape.gpus)


def test_a_new_tenant_takes_no_resources_of_running_tenants() -> None:
    shape = host_shapes.shape("p4d.24xlarge")
    first = [tenant("m", cpus=8, cpu_mode="pinned", gpus=2), tenant("n", cpus=4, mig="2g.10gb")]
    held = plan(shape, first).slices
    more = [tenant("a", cpus=40, cpu_mode="pinned", gpus=4), *first, tenant("b", mig="3g.20gb")]
    found = plan(shape, more, held).slices
    assert (found["m"], found["n"].mig) == (held["m"], held["n"].mig)
    # A tenant that requests the GPU by id gets it; only the tenant that had it gets another.
    taken = plan(shape, [*first, tenant("x", gpu_ids=(held["m"].gpus[0],))], held).slices
    assert taken["n"] == held["n"]
    assert taken["m"].gpus[0] == held["m"].gpus[1]


def test_a_part_stays_but_where_parts_fit_in_another_order_only() -> None:
    shape, two = host(gpus=1, nodes=1), tenant("two", mig="2g.10gb")
    alone = plan(shape, [two]).slices["two"]
    assert alone.mig == MigInstance(0, "2g.10gb", 4)
    held = {"two": replace(alone, mig=MigInstance(0, "2g.10gb", 0))}  # as others who are gone left it
    three = plan(shape, [two, tenant("three", mig="3g.20gb")], held).slices
    assert three["two"].mig == held["two"].mig
    # Four slices of compute begin at 0 and nowhere else.
    four = plan(shape, [two, tenant("four", mig="4g.20gb")], held).slices
    assert (four["four"].mig, four["two"].mig) == (MigInstance(0, "4g.20gb", 0), MigInstance(0, "2g.10gb", 4))


@pytest.mark.parametrize(
    ("tenants", "says"),
    [
        ([{"cpus": 48}], "tenant 'a': 48 CPUs are too many; use at most 46, which the system leaves"),
        (
            [{"cpus": 3, "cpu_mode": "pinned"}],
            "tenant 'a': 3 pinned CPUs are not whole cores; use a multiple of 2",
        ),
        ([{"memory_gib": 180}], r"tenant 'a': memoryGiB 180 is too much; use at most 176"),
        (
            [{"gpus": 3}, {"gpus": 2}],
            "tenant 'b': 2 GPUs are too many; there are 1 of 4 GPUs, which the tenants before it leave",
        ),
        ([{"gpu_ids": (1,)}, {"gpu_ids": (1,)}], "tenant 'b': GPU 1 is 'a''s; use each GPU once"),
        ([{"gpu_ids": (4,)}], "tenant 'a': GPU 4 does not exist on this host; its GPUs are 0, 1, 2, 3"),
        (
            [{"mig": "1g.5gb"}],
            "tenant 'a': MIG profile 1g.5gb does not exist on this host; these GPUs do not support MIG",
        ),
        ([{"uid": 2000}, {"uid": 2000}], "tenant 'b': uid 2000 is 'a''s; use each uid once"),
        (
            [{"host_port": 8000, "container_port": 1}, {"host_port": 8000, "container_port": 2}],
            "tenant 'b': hostPort 8000 is 'a''s; use each hostPort once",
        ),
        (
            [{"uid": 2000}, {"uid": 34_768}],
            "tenant 'b': uid 34768 has the addresses of 'a' with uid 2000; use uids that do not",
        ),
    ],
)
def test_a_refusal_says_what_and_what_is_allowed(tenants: list[dict[str, Any]], says: str) -> None:
    requested = [tenant(name, **fields) for name, fields in zip("ab", tenants, strict=False)]
    with pytest.raises(PlanRefusedError, match=f"^{says}"):
        plan(host_shapes.shape("g5.12xlarge"), requested)


def test_a_list_and_a_slice_survive_their_text() -> None:
    tenants = (
        tenant("a", mig="1g.5gb", command=("serve", "--all"), environment={"A": "b"}),
        tenant("b", gpu_ids=(0, 3), host_port=8000, container_port=80, cpu_mode="pinned"),
    )
    text = codec.encode(tenants)
    assert codec.decode(text) == tenants
    assert codec.encode(codec.decode(text)) == text
    [defaults] = json.loads(codec.encode([tenant("c")]))["tenants"]
    assert defaults.keys() == {"name", "uid", "cpus", "memoryGib", "image"}
    for one in plan(host_shapes.shape("p4d.24xlarge"), tenants).slices.values():
        assert codec.decode_slice(codec.encode_slice(one)) == one


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uid": 1000}, "tenants\\[0\\].uid must be from 2000 to 59999, not 1000"),
        ({"hostPort": 80}, "tenants\\[0\\].hostPort must be from 1024 to 32767, not 80"),
        (
            {"hostPort": 8000},
            "hostPort and containerPort of 'a' must both be set, or neither; they are 8000 and None",
        ),
        ({"hostPort": 25888, "containerPort": 1}, "hostPort 25888 of 'a' is the agent's"),
        ({"gpus": 1, "mig": "1g.5gb"}, "gpus and mig of 'a' are both set; set one of them"),
        ({"image": "a:latest"}, r"tenants\[0\].image must be text that matches"),
        ({"cpuMode": "some"}, "tenants\\[0\\].cpuMode must be 'shared', 'capped' or 'pinned', not 'some'"),
        ({"color": "red"}, r"tenants\[0\].color is not a known key"),
    ],
)
def test_a_wrong_list_is_refused_by_its_key(change: dict[str, Any], says: str) -> None:
    document = json.loads(codec.encode([tenant("a")]))
    document["tenants"][0] |= change
    with pytest.raises(ConfigError, match=says):
        codec.decode(json.dumps(document))


def test_shares_give_the_weight_that_is_meant_under_both_curves() -> None:
    # The points that runc's own change names.
    assert [weights.weight_of(n) for n in (2, 1024, 262_144)] == [1, 100, 10_000]
    assert [weights.old_weight_of(n) for n in (2, 1024, 262_144)] == [1, 39, 10_000]
    for curve in (weights.weight_of, weights.old_weight_of):
        for cpus in range(1, 241):
            got = curve(weights.shares_for(weights.PER_CPU * cpus, curve))
            assert 0 <= got - weights.PER_CPU * cpus <= 1
    # Their ratio is that of the CPUs, within a hundredth.
    one, four = (weights.weight_of(weights.shares_for(weights.PER_CPU * n)) for n in (4, 16))
    assert four / one == pytest.approx(4, rel=0.01)


def test_any_list_is_reached_from_any_state_in_bounded_steps() -> None:
    result = slices.list_pairs(400, seed=11)
    assert result["list_pairs"] >= 400
    assert {result[name] for name in ("stuck", "clashes", "silent")} == {0}
    assert result["stopped_first"] > 40
