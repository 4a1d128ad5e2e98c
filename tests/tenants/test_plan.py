"""Plans of shared hosts: no overlaps, no moves for a new tenant, and rejections that name their cause."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.tenants.hosts import hosts, tenant_lists
from tests.tenants.laws import moved, overlaps, oversold
from userdata.agent.tenants.model import HostShape, PlanRefusedError, Tenant
from userdata.agent.tenants.plan import plan


@given(hosts, tenant_lists())
def test_an_accepted_plan_neither_oversells_nor_overlaps_and_a_refused_one_names_the_first_that_does_not_fit(
    machine: HostShape, tenants: list[Tenant]
) -> None:
    try:
        found = plan(machine, tenants)
    except PlanRefusedError as refused:
        refusal = str(refused)
        named = re.fullmatch(r"tenant '(.+?)': .+, allowed: .+", refusal) or pytest.fail(refusal)
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
        and sum(one.memory_gib for one in plain) <= machine.memory_gib - machine.reserved_memory_gib
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
