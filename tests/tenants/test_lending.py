"""Who is limited while a neighbour lacks its CPUs, on a host that a kernel divides unfairly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdata.agent.tenants.lending import MEMORY_SECONDS, PERIOD_SECONDS, CpuUse, LendingState, next_state

CROWD = 2.0
"""How much more than its weight a crowd of processes counts; 2 leaves a neighbour two thirds of its half."""


class PlayedHost:
    """CPUs that tenants share; each wants some, and counts by its weight: its CPUs, or more of them."""

    def __init__(self, size: float, cpus: Mapping[str, int], **crowds: float) -> None:
        self.size, self.cpus, self.crowds = size, cpus, crowds
        self.wants = dict.fromkeys(cpus, 0.0)
        self.beyond = dict.fromkeys(cpus, 0.0)
        """CPUs that each uses beyond its quota, if it wants them: the kernel's work on its behalf."""
        self.state, self.now = LendingState(), 0.0
        self.idle = size

    def used(self) -> dict[str, float]:
        """Divide the CPUs by weight; what one leaves goes to the others."""
        quotas = {name: limit + self.beyond[name] for name, limit in self.state.limits.items()}
        limits = {n: min(want, quotas.get(n, self.size)) for n, want in self.wants.items()}
        used, open_ = dict.fromkeys(limits, 0.0), {n for n, limit in limits.items() if limit > 0}
        free = self.size
        while open_ and free > 1e-9:
            weights = {n: self.cpus[n] * self.crowds.get(n, 1.0) for n in open_}
            parts = {n: free * weight / sum(weights.values()) for n, weight in weights.items()}
            for name, part in parts.items():
                used[name] += min(part, limits[name] - used[name])
            open_ = {n for n in open_ if used[n] < limits[n] - 1e-9}
            free = self.size - sum(used.values())
        return used

    def play(self, seconds: float) -> dict[str, float]:
        """Let time pass; return the CPU seconds of each."""
        spent = dict.fromkeys(self.cpus, 0.0)
        for _ in range(round(seconds / PERIOD_SECONDS)):
            used = self.used()
            self.idle = self.size - sum(used.values())
            self.now += PERIOD_SECONDS
            uses = {name: CpuUse(self.cpus[name], cpus) for name, cpus in used.items()}
            self.state = next_state(self.state, uses, self.idle, self.now)
            spent = {name: spent[name] + cpus * PERIOD_SECONDS for name, cpus in used.items()}
        return spent


def two() -> PlayedHost:
    return PlayedHost(2.0, {"ada": 1, "bo": 1}, bo=CROWD)


def test_a_tenant_that_wakes_has_its_cpus_within_a_second() -> None:
    host = two()
    host.wants["bo"] = 100.0
    assert host.play(5.0)["bo"] == pytest.approx(10.0)  # all that is idle is lent
    host.wants["ada"] = 2.0
    host.play(1.0)
    assert host.used()["ada"] >= 0.95
    assert host.play(60.0)["ada"] >= 0.95 * 60
    host.wants["ada"] = 0.0
    host.play(0.5)
    assert host.play(5.0)["bo"] == pytest.approx(10.0)  # and lent again


def test_a_limit_ends_when_its_cpus_are_idle_however_long_it_was_exceeded() -> None:
    host = two()
    host.wants |= {"ada": 2.0, "bo": 100.0}
    host.beyond["bo"] = 0.15
    host.play(60.0)
    host.wants["ada"], host.beyond["bo"] = 0.0, 0.0
    host.play(0.5)
    assert host.used()["bo"] == pytest.approx(2.0)


def test_a_fair_host_is_left_alone() -> None:
    host = PlayedHost(2.0, {"ada": 1, "bo": 1})
    host.wants |= {"ada": 2.0, "bo": 100.0}
    host.play(10.0)
    assert not host.state.limits


def test_a_tenant_of_one_process_is_helped_too() -> None:
    host = PlayedHost(32.0, {"ada": 16, "bo": 16}, bo=64.0)
    host.wants |= {"ada": 1.0, "bo": 1000.0}
    assert host.used()["ada"] < 0.5
    host.play(1.0)
    assert host.used()["ada"] >= 0.9


def test_a_tenant_that_needs_no_more_costs_the_borrower_next_to_nothing() -> None:
    host = two()
    host.wants |= {"ada": 0.5, "bo": 100.0}
    assert host.play(300.0)["bo"] >= 0.97 * 1.5 * 300
    host.wants["ada"] = 2.0  # and has its CPUs within a second when it does
    host.play(1.0)
    assert host.used()["ada"] >= 0.95


def test_what_is_idle_is_nobodys_fault() -> None:
    uses = {"ada": CpuUse(4, 1.0), "bo": CpuUse(4, 5.0)}
    assert not next_state(LendingState(), uses, idle=2.0, now=0.0).limits
    assert next_state(LendingState(), uses, idle=0.0, now=0.0).limits == {"bo": 4.0}


def test_one_with_a_cap_may_lack_cpus_and_is_never_limited() -> None:
    uses = {"ada": CpuUse(1, 1.03, can_borrow=False), "bo": CpuUse(2, 1.0), "cy": CpuUse(1, 1.5)}
    assert next_state(LendingState(), uses, idle=0.0, now=0.0).limits == {"cy": 1.0}
    capped = {**uses, "bo": replace(uses["bo"], can_borrow=False)}
    assert next_state(LendingState(), capped, idle=0.0, now=0.0).limits == {"cy": 1.0}


def test_a_tenant_that_is_gone_is_not_limited() -> None:
    state = LendingState({"bo": 1.0}, 0.5, frozenset({"ada"}))
    assert next_state(state, {"ada": CpuUse(1, 1.0)}, idle=0.0, now=0.0).limits == {}
    assert next_state(state, {}, idle=2.0, now=0.0).demands == {}


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.floats(0, 40), st.sampled_from([1.0, 2.0, 8.0])), max_size=30
    ),
    st.integers(4, 24),
)
def test_whatever_tenants_want_each_has_its_cpus_if_it_wants_them(
    changes: list[tuple[str, float, float]], size: int
) -> None:
    host = PlayedHost(float(size), dict.fromkeys("abcd", size // 4))
    for name, wanted, crowd in changes:
        host.wants[name], host.crowds[name] = wanted, crowd
        host.play(PERIOD_SECONDS)
        for limited, limit in host.state.limits.items():
            assert limit >= host.cpus[limited]
    host.play(MEMORY_SECONDS + 3.0)
    used = host.used()
    for name, wanted in host.wants.items():
        due = min(wanted, float(host.cpus[name]))
        assert used[name] >= 0.85 * due or due < 0.2, (name, used, host.state)
    if not host.state.limits:
        assert sum(used.values()) == pytest.approx(min(size, sum(host.wants.values())), abs=1e-6)
