"""Common causes: faults of many hosts at once lead to no replacement and to one incident."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from tests.health.simulated_group import (
    SimulatedGroup,
    crashing,
    idle,
    missing,
    not_reporting,
    opened_incidents,
    requested_replacements,
    resolved_incidents,
    restarted,
    stuck,
    xid,
)

TEN = tuple(f"i-{n:02}" for n in range(10))
Fault = Callable[[Worker], Worker | None]


def everywhere(fault: Fault, count: int = 10) -> SimulatedGroup:
    group = SimulatedGroup().add(*TEN[:count])
    group.faults = dict.fromkeys(TEN, fault)
    return group


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        (crashing(), "crashing"),
        (not_reporting(), "unheard"),
        (missing, "unheard"),
        (stuck, "unfinished"),
        (idle, "unfinished"),
        (xid, "xid"),
    ],
)
@pytest.mark.parametrize("count", [2, 10])
def test_a_fault_of_all_hosts_replaces_none_and_opens_one_incident(
    fault: Fault, family: str, count: int
) -> None:
    group = everywhere(fault, count)
    decisions = group.run(70)
    assert (requested_replacements(decisions), restarted(decisions)) == ({}, [])
    [key] = opened_incidents(decisions)
    assert key.startswith(f"common/{family}/")
    group.faults.clear()
    decisions = group.run(30)
    assert resolved_incidents(decisions) == [key]
    assert requested_replacements(decisions) == {}


@pytest.mark.parametrize(("fault", "is_mentioned"), [(missing, True), (stuck, False)])
def test_the_notification_says_what_the_controller_still_replaces(fault: Fault, is_mentioned: bool) -> None:
    [incident] = [incident for decision in everywhere(fault).run(70) for incident in decision.new_incidents]
    note = (
        "The controller still replaces an instance that sends no heartbeats for 30 minutes"
        in incident.description
    )
    assert note is is_mentioned


def test_a_bad_version_on_a_few_hosts_is_a_common_cause() -> None:
    group = SimulatedGroup().add(*TEN)
    group.run()
    group.faults = dict.fromkeys(TEN[:3], crashing(version="v2"))
    decisions = group.run(60)
    assert requested_replacements(decisions) == {}
    assert opened_incidents(decisions) == ["common/crashing/version v2"]


def test_a_single_crashing_host_of_a_version_is_replaced() -> None:
    group = SimulatedGroup().add(*TEN)
    group.faults = {"i-05": crashing()}
    assert requested_replacements(group.run(10)) == {"i-05": "crashing"}


def test_an_intermittent_cause_is_one_incident_and_suppresses_replacements() -> None:
    group = everywhere(xid)
    decisions = group.run(5)
    for _ in range(5):
        group.faults = {"i-00": xid}
        decisions += group.run(5)
        group.faults = dict.fromkeys(TEN, xid)
        decisions += group.run(5)
    assert requested_replacements(decisions) == {}
    assert opened_incidents(decisions) == ["common/xid/version v1"]
    assert resolved_incidents(decisions) == []


def test_if_no_worker_of_the_stack_reports_even_a_group_of_one_is_not_replaced() -> None:
    group = SimulatedGroup().add("i-00")
    group.faults = {"i-00": not_reporting()}
    group.is_registry_stale = True
    decisions = group.run(60)
    assert requested_replacements(decisions) == {}
    assert opened_incidents(decisions) == ["common/unheard/registry"]


def test_an_on_premises_outage_does_not_suppress_remediation_in_aws() -> None:
    group = SimulatedGroup().add(*TEN).add("gpu-1", "gpu-2", on_premises=True)
    group.faults = {"gpu-1": not_reporting(), "gpu-2": not_reporting(), "i-03": xid}
    decisions = group.run(10)
    assert opened_incidents(decisions) == ["common/unheard/on-premises"]
    assert requested_replacements(decisions) == {"i-03": "xid"}


def test_a_broker_that_is_down_for_ten_minutes_costs_nothing() -> None:
    group = SimulatedGroup().add(*TEN)
    group.run(30)
    group.faults = dict.fromkeys(TEN, stuck)
    group.waiting_requests = None
    decisions = group.run(10)
    group.waiting_requests = 20_000
    decisions += group.run(2)  # the workers reconnect
    group.faults.clear()
    decisions += group.run(60)
    assert (requested_replacements(decisions), restarted(decisions), opened_incidents(decisions)) == (
        {},
        [],
        [],
    )


def test_instances_that_never_become_healthy_are_replaced_at_most_three_times_a_day() -> None:
    group = SimulatedGroup(HealthSettings(grace_seconds=300)).add("i-0", age=0.0)
    replaced = 0
    opened: list[str] = []
    for minute in range(24 * 60 - 60):
        [decision] = group.run()
        group.faults = dict.fromkeys(group.hosts, missing)
        opened += opened_incidents([decision])
        if decision.replacement_requests:  # the controller replaces it
            group.hosts.clear()
            replaced += 1
            group.add(f"i-{minute}", age=0.0)
            group.faults = dict.fromkeys(group.hosts, missing)
    assert replaced == 3
    assert opened == ["budget", "in-vain"]
