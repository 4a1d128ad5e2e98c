"""The planner: nobody gets what another has, nobody moves for another, nothing is dealt out twice."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdata.agent.errors import RefusedError
from userdata.agent.slices.model import DEALT_PORTS, Machine, Share, Slices, Tenant
from userdata.agent.slices.plan import plan

IMAGE = f"example.com/tenant@sha256:{'0' * 64}"
MACHINE = Machine(tuple(f"GPU-{n}" for n in range(8)), tuple(range(32)), 256)


def tenant(name: str, **changes: Any) -> Tenant:
    user = 1000 + sum(ord(c) * 131**n for n, c in enumerate(name))
    return Tenant(**{"name": name, "image": IMAGE, "user": user, "cpus": 4, "memory_gib": 16, **changes})


def slices(*tenants: Tenant) -> Slices:
    return Slices(tenants, reserved_cpus=2, reserved_memory_gib=6)


wishes = st.dictionaries(
    st.sampled_from("abcdef"),
    st.fixed_dictionaries(
        {
            "gpus": st.integers(0, 5),
            "cpus": st.integers(1, 14),
            "memory_gib": st.integers(1, 120),
            "port": st.sampled_from([0, 8080]),
        }
    ),
    max_size=6,
)


@given(st.lists(wishes, min_size=1, max_size=8), st.permutations(range(6)))
def test_whatever_comes_and_goes(history: list[dict[str, dict[str, int]]], order: list[int]) -> None:
    held: dict[str, Share] = {}
    for wished in history:
        tenants = [tenant(name, **wish) for name, wish in sorted(wished.items())]
        sums = {what: sum(wish[what] for wish in wished.values()) for what in ("gpus", "cpus", "memory_gib")}
        fits = sums["gpus"] <= 8 and sums["cpus"] <= 30 and sums["memory_gib"] <= 250
        if not fits:
            with pytest.raises(RefusedError, match="left; allowed"):
                plan(slices(*tenants), MACHINE, held)
            continue
        shares = plan(slices(*tenants), MACHINE, held)
        shuffled = [tenants[n] for n in order if n < len(tenants)]
        assert plan(slices(*shuffled), MACHINE, held) == shares  # the order in the file says nothing
        for name, wish in wished.items():
            share, had = shares[name], held.get(name, Share())
            assert (len(share.gpus), len(share.cpus)) == (wish["gpus"], wish["cpus"])
            assert (share.memory_gib, bool(share.port)) == (wish["memory_gib"], bool(wish["port"]))
            assert {*share.gpus} <= {*MACHINE.gpus}
            assert {*share.cpus} <= {*MACHINE.cpus[2:]}
            # Who grows keeps all that he has, who shrinks keeps some of it, who does neither stays put.
            for has, now in ((had.gpus, share.gpus), (had.cpus, share.cpus)):
                assert {*has} <= {*now} or {*now} <= {*has}
            assert not (had.port and share.port) or had.port == share.port
        for one, other in combinations(shares.values(), 2):
            assert not {*one.gpus} & {*other.gpus}
            assert not {*one.cpus} & {*other.cpus}
            assert not one.port or one.port != other.port
        assert plan(slices(*tenants), MACHINE, shares) == shares
        held = shares


def test_cpus_go_core_by_core_and_ports_from_the_lowest() -> None:
    machine = Machine((), (0, 4, 1, 5, 2, 6, 3, 7), 64)
    two = slices(tenant("b", cpus=2, port=80), tenant("a", cpus=3, port=80))
    shares = plan(two, machine, {})
    assert (shares["a"].cpus, shares["b"].cpus) == ((1, 5, 2), (6, 3))
    assert (shares["a"].port, shares["b"].port) == (DEALT_PORTS[0], DEALT_PORTS[1])
    assert plan(slices(tenant("a", port=80, host_port=9000)), machine, {})["a"].port == 9000


@pytest.mark.parametrize(
    ("newcomer", "text"),
    [
        ({"gpus": 3}, "tenant b asks for 3 GPUs, 2 left"),
        ({"cpus": 11}, "tenant b asks for 11 CPUs, 10 left"),
        ({"memory_gib": 51}, "tenant b asks for 51 GiB of memory, 50 left"),
    ],
)
def test_too_much_is_refused_by_what_the_newcomer_asks(newcomer: dict[str, int], text: str) -> None:
    living = tenant("z", gpus=6, cpus=20, memory_gib=200)
    held = plan(slices(living), MACHINE, {})
    with pytest.raises(RefusedError, match=text):
        plan(slices(living, tenant("b", **newcomer)), MACHINE, held)


def test_a_tenant_that_grows_too_far_is_told_what_he_could_have() -> None:
    living = [tenant("a", gpus=2, memory_gib=100), tenant("z", gpus=5, memory_gib=100)]
    held = plan(slices(*living), MACHINE, {})
    for wish, text in (
        ({"gpus": 4}, "a asks for 4 GPUs, 3 left"),
        ({"memory_gib": 151}, "151 GiB of memory, 150 left"),
    ):
        with pytest.raises(RefusedError, match=text):
            plan(slices(tenant("a", **{"gpus": 2, "memory_gib": 100, **wish}), living[1]), MACHINE, held)


def test_who_held_a_gpu_that_is_gone_gets_another_and_the_others_stay() -> None:
    both = slices(tenant("a", gpus=2), tenant("b", gpus=2))
    held = plan(both, MACHINE, {})
    left = Machine(MACHINE.gpus[1:], MACHINE.cpus, 256)
    after = plan(both, left, held)
    assert after["b"] == held["b"]
    assert after["a"].gpus == ("GPU-1", "GPU-4")
