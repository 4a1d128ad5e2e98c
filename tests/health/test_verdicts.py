"""Each verdict, its remediation, conditions that only look like it, and common causes of many faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from tests.health.simulated_group import (
    NONE,
    START,
    Acts,
    SimulatedGroup,
    acts,
    crashing,
    idle,
    missing,
    not_reporting,
    stuck,
    with_report,
    xid,
)

TEN = tuple(f"i-{n:02}" for n in range(10))
Fault = Callable[[Worker], Worker | None]


def group_with_fault(fault: Fault | None = None, hosts: tuple[str, ...] = ("i-03",)) -> SimulatedGroup:
    return SimulatedGroup(faults=dict.fromkeys(hosts, fault) if fault else {}).add(*TEN)


def test_a_healthy_group_has_no_remediation_and_no_incident() -> None:
    decisions = group_with_fault().run(60)
    assert acts(decisions) == NONE
    assert decisions[-1].memory.pending_symptoms == {}


@pytest.mark.parametrize(
    ("fault", "verdict", "minutes"),
    [(not_reporting(), "silent", 5), (xid, "xid", 1), (missing, "missing", 7), (crashing(), "crashing", 8)],
)
def test_an_instance_with_a_fault_that_needs_replacement_is_replaced(
    fault: Fault, verdict: str, minutes: int
) -> None:
    decisions = group_with_fault(fault).run(minutes)
    assert acts(decisions) == Acts(replaced={"i-03": verdict})
    assert len({request.requested_at for one in decisions for request in one.replacement_requests}) == 1


@pytest.mark.parametrize(("fault", "verdict"), [(stuck, "stuck"), (idle, "idle-gpu")])
def test_a_worker_is_restarted_first_and_its_instance_replaced_if_that_fails(
    fault: Fault, verdict: str
) -> None:
    group = group_with_fault(fault)
    assert group.acts(17) == Acts(restarted=["i-03/0"])
    assert group.acts(20) == Acts(replaced={"i-03": verdict})


def test_a_successful_restart_is_not_followed_by_a_replacement() -> None:
    group = group_with_fault(stuck)
    assert group.acts(17) == Acts(restarted=["i-03/0"])
    group.faults.clear()
    assert group.acts(60) == NONE


@pytest.mark.parametrize("fault", [stuck, idle])
@pytest.mark.parametrize("waiting", [0, None])
def test_a_worker_is_not_stuck_while_the_queue_is_empty_or_unknown(fault: Fault, waiting: int | None) -> None:
    group = group_with_fault(lambda worker: with_report(worker, done=7, rate=0.0), hosts=TEN)
    group.faults["i-03"] = fault
    group.waiting_requests = waiting
    assert group.acts(60).restarted == []


@pytest.mark.parametrize("waiting", [0, None])
@pytest.mark.parametrize(("rate", "expected"), [(0.013, ["i-03/0"]), (0.01, [])])
def test_a_worker_is_stuck_if_others_process_ten_requests_though_the_queue_is_empty(
    rate: float, expected: list[str], waiting: int | None
) -> None:
    group = group_with_fault(lambda worker: with_report(worker, rate=rate), hosts=TEN)
    group.faults["i-03"] = stuck
    group.waiting_requests = waiting
    assert group.acts(17) == Acts(restarted=expected)


def test_a_stale_queue_state_is_ignored() -> None:
    group = group_with_fault(stuck)
    snapshot = group.snapshot()
    assert snapshot.has_waiting_requests
    for seconds in (-200, 3600):
        stale = replace(snapshot.queue, observed_at=group.now + seconds)
        assert not replace(snapshot, queue=stale).has_waiting_requests


def test_one_slow_request_among_others_is_not_stuck() -> None:
    group = group_with_fault(
        lambda worker: with_report(worker, done=int((worker.heartbeat - START) / 840), rate=0.0)
    )
    assert group.acts(120) == NONE


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
def test_a_wrong_clock_opens_an_incident_without_remediation(ahead: float) -> None:
    group = group_with_fault(lambda worker: replace(worker, heartbeat=worker.heartbeat + ahead))
    assert group.acts(60) == Acts(opened=["clock/aws"])


def test_a_dead_worker_with_a_clock_ahead_counts_as_not_reporting() -> None:
    assert group_with_fault(not_reporting(START + 7200)).acts(5) == Acts(replaced={"i-03": "silent"})


def test_an_old_version_opens_an_incident_after_two_hours() -> None:
    group = group_with_fault()
    group.run()
    group.faults = dict.fromkeys(TEN[:7], lambda worker: with_report(worker, version="v2"))
    assert group.acts(119) == NONE
    assert group.acts(120) == Acts(opened=["old-version/aws"])
    group.faults = dict.fromkeys(TEN, lambda worker: with_report(worker, version="v2"))
    assert group.acts(20) == Acts(resolved=["old-version/aws"])


def test_a_new_instance_has_the_grace_period_or_twice_the_boot_time() -> None:
    group = group_with_fault()
    group.add("i-new", age=0.0)
    group.faults = {"i-new": missing}
    assert group.acts(19) == NONE
    assert group.acts(2) == Acts(replaced={"i-new": "missing"})
    slow = group_with_fault()
    slow.boot_seconds = 1200.0
    slow.add("i-new", age=0.0)
    slow.faults = {"i-new": missing}
    assert slow.acts(55) == NONE


@pytest.mark.parametrize("fault", [not_reporting(), xid, missing, crashing(), stuck])
def test_an_exempt_instance_is_never_replaced_or_restarted(fault: Fault) -> None:
    group = group_with_fault(fault)
    group.hosts["i-03"] = replace(group.hosts["i-03"], exemption_reason="draining")
    assert group.acts(120) == NONE


def test_a_replacement_request_is_withdrawn_on_recovery_termination_and_drain() -> None:
    for end in ("recovers", "goes", "drains"):
        group = group_with_fault(xid)
        assert group.acts(2) == Acts(replaced={"i-03": "xid"})
        if end == "recovers":
            group.faults.clear()
        elif end == "goes":
            del group.hosts["i-03"]
        else:
            group.hosts["i-03"] = replace(group.hosts["i-03"], exemption_reason="draining")
        assert group.acts() == NONE, end


def test_a_host_with_malformed_items_is_not_replaced_for_missing_workers() -> None:
    group = group_with_fault(missing)
    group.hosts["i-03"] = replace(group.hosts["i-03"], has_malformed_records=True)
    assert group.acts(60) == NONE


def test_on_premises_hosts_are_restarted_or_reported_and_never_replaced() -> None:
    for fault, key in ((not_reporting(), "silent"), (xid, "xid"), (crashing(), "crashing")):
        group = group_with_fault().add("gpu-1", "gpu-2", "gpu-3", on_premises=True)
        group.faults = {"gpu-2": fault}
        assert group.acts(60) == Acts(opened=[f"{key}/on-premises"])
    group = group_with_fault().add("gpu-1", "gpu-2", "gpu-3", on_premises=True)
    group.faults = {"gpu-2": stuck}
    assert group.acts(120) == Acts(restarted=["gpu-2/0"], opened=["stuck/on-premises"])


def test_without_permission_to_act_no_remediation_starts() -> None:
    group = group_with_fault(xid)
    group.can_act = False
    assert group.acts(30) == NONE


def test_a_maximum_of_0_percent_disables_remediation() -> None:
    group = group_with_fault(xid)
    group.settings = HealthSettings(max_unavailable_percent=0)
    assert group.acts(30) == Acts(opened=["budget"])


def test_of_many_unhealthy_instances_only_the_allowed_share_is_replaced_at_once() -> None:
    group = group_with_fault(xid, TEN[:4])
    decisions = group.run(60)
    assert {len(decision.replacement_requests) for decision in decisions} == {2}
    assert acts(decisions).opened == ["budget"]
    for host_id in TEN[:2]:  # the controller has replaced them
        del group.hosts[host_id]
    assert list(group.acts().replaced) == ["i-02"]  # 20 % of eight, at least one


def test_starts_before_the_first_report_count_on_a_new_instance_only() -> None:
    group = SimulatedGroup().add("i-00", "i-01", "i-02", "i-03").add("i-new", age=600.0)
    group.faults = dict.fromkeys(("i-00", "i-new"), lambda worker: with_report(worker, starts=9))
    assert group.acts(5) == Acts(replaced={"i-new": "crashing"})


def test_a_crash_loop_is_found_if_the_worker_has_no_item_between_two_starts() -> None:
    group = SimulatedGroup().add("i-00", "i-01", "i-02", "i-03")

    def fault(worker: Worker) -> Worker | None:
        minute = int((worker.heartbeat + 10 - START) // 60)
        return with_report(worker, starts=1 + minute // 2, done=0, rate=0.0) if minute % 2 else None

    group.faults = {"i-03": fault}
    assert group.acts(20).replaced == {"i-03": "crashing"}


def everywhere(fault: Fault, count: int = 10) -> SimulatedGroup:
    return SimulatedGroup(faults=dict.fromkeys(TEN, fault)).add(*TEN[:count])


@pytest.mark.parametrize(
    ("fault", "family", "minutes"),
    [
        (crashing(), "crashing", 8),
        (not_reporting(), "unheard", 5),
        (missing, "unheard", 5),
        (stuck, "unfinished", 16),
        (idle, "unfinished", 16),
        (xid, "xid", 1),
    ],
)
@pytest.mark.parametrize("count", [2, 10])
def test_a_fault_of_all_hosts_replaces_none_and_opens_one_incident(
    fault: Fault, family: str, minutes: int, count: int
) -> None:
    group = everywhere(fault, count)
    decisions = group.run(70)
    assert any(decision.new_incidents for decision in decisions[: minutes + 1])
    [key] = acts(decisions).opened
    assert key.startswith(f"common/{family}/")
    assert acts(decisions) == Acts(opened=[key])
    group.faults.clear()
    assert group.acts(30) == Acts(resolved=[key])


@pytest.mark.parametrize(("fault", "is_mentioned"), [(missing, True), (stuck, False)])
def test_the_notification_says_what_the_controller_still_replaces(fault: Fault, is_mentioned: bool) -> None:
    [incident] = [incident for decision in everywhere(fault).run(70) for incident in decision.new_incidents]
    note = (
        "The controller still replaces an instance that sends no heartbeats for 30 minutes"
        in incident.description
    )
    assert note is is_mentioned


def test_a_bad_version_on_a_few_hosts_is_a_common_cause() -> None:
    group = group_with_fault()
    group.run()
    group.faults = dict.fromkeys(TEN[:3], crashing(version="v2"))
    assert group.acts(60) == Acts(opened=["common/crashing/version v2"])


def test_a_single_crashing_host_of_a_version_is_replaced() -> None:
    assert group_with_fault(crashing(), ("i-05",)).acts(10) == Acts(replaced={"i-05": "crashing"})


def test_an_intermittent_cause_is_one_incident_and_suppresses_replacements() -> None:
    group = everywhere(xid)
    decisions = group.run(5)
    for _ in range(5):
        group.faults = {"i-00": xid}
        decisions += group.run(5)
        group.faults = dict.fromkeys(TEN, xid)
        decisions += group.run(5)
    assert acts(decisions) == Acts(opened=["common/xid/version v1"])


def test_if_no_worker_of_the_stack_reports_even_a_group_of_one_is_not_replaced() -> None:
    group = SimulatedGroup().add("i-00")
    group.faults = {"i-00": not_reporting()}
    group.is_registry_stale = True
    assert group.acts(60) == Acts(opened=["common/unheard/registry"])


def test_an_on_premises_outage_does_not_suppress_remediation_in_aws() -> None:
    group = SimulatedGroup().add(*TEN).add("gpu-1", "gpu-2", on_premises=True)
    group.faults = {"gpu-1": not_reporting(), "gpu-2": not_reporting(), "i-03": xid}
    assert group.acts(10) == Acts(replaced={"i-03": "xid"}, opened=["common/unheard/on-premises"])


def test_a_broker_that_is_down_for_ten_minutes_costs_nothing() -> None:
    group = group_with_fault()
    group.run(30)
    group.faults = dict.fromkeys(TEN, stuck)
    group.waiting_requests = None
    assert group.acts(10) == NONE
    group.waiting_requests = 20_000
    assert group.acts(2) == NONE  # the workers reconnect
    group.faults.clear()
    assert group.acts(60) == NONE


def test_instances_that_never_become_healthy_are_replaced_at_most_three_times_a_day() -> None:
    group = SimulatedGroup(HealthSettings(grace_seconds=300)).add("i-0", age=0.0)
    replaced = 0
    opened: list[str] = []
    for minute in range(24 * 60 - 60):
        [decision] = group.run()
        group.faults = dict.fromkeys(group.hosts, missing)
        opened += acts([decision]).opened
        if decision.replacement_requests:  # the controller replaces it
            group.hosts.clear()
            replaced += 1
            group.add(f"i-{minute}", age=0.0)
            group.faults = dict.fromkeys(group.hosts, missing)
    assert replaced == 3
    assert opened == ["budget", "in-vain"]
