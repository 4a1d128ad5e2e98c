"""Rollouts in simulated time: good releases reach all hosts, bad ones are rolled back, 90 % serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.release_settings import DesiredRelease
from contracts.group.replacement_requests import MAX_REQUESTS
from contracts.group.rollout_request import NO_REQUEST, RolloutRequest, dump, parse
from lambdas.core.health.model import HealthVerdict, HostFinding
from lambdas.core.rollout.comparison import Paired
from lambdas.core.rollout.state import VERIFY_SECONDS, Rollout
from lambdas.core.rollout.step import ROLLED_BACK, STALLED, plan_step
from research.parts.judged_rollouts import Case, JudgedRollout
from research.services import rollout
from tests.rollout.simulated_service import (
    BAD,
    NEW,
    OLD,
    POLL_SECONDS,
    Fault,
    SimulatedService,
    churn,
    min_served_share,
    release,
)

THIRD = release("third")


def documented_seconds(service: SimulatedService) -> float:
    """Return the time of docs/services.md: two boots, one host, then the others in batches."""
    batch = -(-service.target * service.settings.max_unavailable_percent // 100)
    rounds = 1 + -(-(service.target + batch - 1) // batch)
    return 2 * (service.boot_seconds + 2 * POLL_SECONDS) + rounds * (
        service.restart_seconds + VERIFY_SECONDS + 3 * POLL_SECONDS
    )


@pytest.mark.parametrize(
    ("target", "maximum", "per_slot"), [(1, 2, 1), (3, 5, 1), (4, 6, 4), (8, 16, 1), (10, 10, 1), (23, 30, 2)]
)
def test_a_good_release_reaches_all_workers_in_the_stated_time(
    target: int, maximum: int, per_slot: int
) -> None:
    service = SimulatedService(target, maximum, per_slot)
    service.min_served = 10**9
    if maximum > target:
        limit = documented_seconds(service)
    else:  # without room for more, a tenth at a time
        limit = documented_seconds(
            replace(service, settings=replace(service.settings, max_unavailable_percent=10))
        )
    assert service.roll_out(NEW, 600) <= limit
    assert min_served_share(service) >= 0.9
    assert service.messages == []
    service.run(20)
    assert service.rollout.stable == NEW
    assert service.rollout.candidate is None
    assert len(service.instances) == target
    assert service.last_decision.rollout.request == NO_REQUEST


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize(("target", "maximum"), [(3, 4), (8, 16), (20, 20)])
def test_a_bad_release_is_rolled_back_with_one_incident(target: int, maximum: int, fault: Fault) -> None:
    service = SimulatedService(target, maximum, faults={NEW.version: fault})
    service.desired = NEW
    service.min_served = 10**9
    service.run_until_rejected()
    service.run_until(lambda: service.all_run(OLD), 60)
    service.run(180)
    assert min_served_share(service) >= 0.9
    assert service.all_run(OLD)
    assert service.messages == [f"{ROLLED_BACK}/{NEW.version}"]
    assert service.replaced == []
    assert service.row.release_for("i-new") == OLD


def test_a_rejected_release_is_not_tried_again_until_the_stack_file_names_another() -> None:
    service = SimulatedService(4, 6, faults={NEW.version: "crashes"})
    service.desired = NEW
    service.run_until_rejected()
    service.run_until(lambda: service.all_run(OLD), 60)
    service.run(600)
    assert set(service.releases) == {OLD}
    service.roll_out(THIRD)
    service.faults.clear()
    service.roll_out(NEW)


def test_a_change_of_the_stack_file_during_a_rollout_is_followed() -> None:
    service = SimulatedService(10, 14)
    service.desired = NEW
    service.run_until(lambda: len(service.verified) >= 3, 120)
    service.min_served = 10**9
    service.roll_out(OLD)
    assert min_served_share(service) >= 0.9
    assert service.messages == []
    assert service.rollout.rejected == ""


def test_a_release_that_fails_late_is_rolled_back_on_all_hosts() -> None:
    service = SimulatedService(10, 14)
    service.desired = NEW
    service.run_until(lambda: len(service.verified) >= 4, 120)
    service.faults[NEW.version] = "crashes"
    service.run_until_rejected(60)
    service.run_until(lambda: service.all_run(OLD), 60)
    assert [key for key in service.messages if key.startswith(ROLLED_BACK)]


def test_without_room_for_surge_a_small_group_reports_a_stalled_rollout() -> None:
    service = SimulatedService(4, 4)
    service.desired = NEW
    service.run(100)
    assert set(service.releases) == {OLD}
    assert service.messages == [STALLED]
    service.maximum = 5
    service.run_until(lambda: service.all_run(NEW), 120)


def test_the_fix_of_a_release_that_crashes_everywhere_is_rolled_out() -> None:
    service = SimulatedService(6, 8, faults={OLD.version: "crashes"})
    service.run(30)
    service.roll_out(NEW)


def test_a_broker_outage_does_not_reject_the_release() -> None:
    service = SimulatedService(
        6, 8, faults={OLD.version: "finishes nothing", NEW.version: "finishes nothing"}
    )
    service.run(30)
    service.desired = NEW
    service.run(60)
    assert service.rollout.rejected == ""
    assert service.releases.count(NEW) <= 1
    service.faults.clear()
    service.run_until(lambda: service.all_run(NEW), 180)


def test_replacements_during_a_rollout_start_the_verified_release() -> None:
    service = SimulatedService(8, 12)
    service.desired = NEW
    service.run_until(lambda: bool(service.rollout.hosts), 60)
    assert service.row.release_for("i-new") == OLD
    service.lose(sorted(service.instances)[-1])
    service.run_until(lambda: len(service.verified) >= 6, 120)
    assert service.row.release_for("i-new") == NEW
    service.lose(min(service.instances))
    service.run_until(lambda: service.all_run(NEW), 60)
    assert service.instances[max(service.instances)].starts == 1  # it booted with the candidate


def test_without_restarts_no_rollout_starts() -> None:
    service = SimulatedService(4, 6)
    service.settings = replace(service.settings, max_unavailable_percent=0)
    service.desired = NEW
    service.run(60)
    assert set(service.releases) == {OLD}
    assert service.row.release_for("i-new") == NEW


def test_after_loss_of_the_state_the_desired_release_counts_as_stable() -> None:
    service = SimulatedService(4, 6)
    service.memory = replace(service.memory, rollout=Rollout())
    service.run(2)
    assert service.rollout.stable == OLD


def test_a_release_that_loses_requests_is_rolled_back_though_the_queue_is_empty() -> None:
    service = SimulatedService(8, 16, faults={NEW.version: "finishes nothing"}, waiting_requests=0)
    service.desired = NEW
    tried: set[str] = set()
    for _ in range(60):
        service.run(1)
        tried |= {name for name, instance in service.instances.items() if instance.release == NEW}
    assert service.rollout.rejected == NEW.version
    assert len(tried) == 1
    assert service.all_run(OLD)


def test_an_undetected_hanging_host_neither_counts_as_serving_nor_runs_the_candidate_first() -> None:
    service = SimulatedService(2, 3, waiting_requests=0)
    hanging, healthy = sorted(service.instances)
    service.hanging.add(hanging)
    service.run(20)
    service.desired = NEW
    # New instances hang, too: the only serving instance keeps its release.
    service.hanging |= {f"i-{n:08x}" for n in range(3, 30)}
    service.run(30)
    assert service.served == 1
    assert not service.row.candidate_instances
    service.hanging = {hanging}
    service.run_until(lambda: service.instances[healthy].release == NEW, 60)
    assert service.rollout.rejected == ""
    assert not service.violations


def test_a_release_that_fails_its_few_requests_is_not_verified() -> None:
    service = SimulatedService(2, 4, waiting_requests=0, worker_rate=0.001)
    service.faults[NEW.version] = "fails all"
    service.desired = NEW
    service.run_until(lambda: NEW in service.releases, 40)
    # No other host has requests, so it cannot be expected to have had more.
    service.hanging = {instance.id for instance in service.instances.values() if instance.release != NEW}
    service.run(60)
    stable = service.rollout.stable
    assert (stable.version, service.verified) == (OLD.version, [])
    service.run_until_rejected(200)


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [(0.0, 0.55, True), (0.2, 0.55, True), (0.3, 0.55, False), (0.0, 0.45, True), (0.2, 0.2, False)],
)
def test_a_release_that_fails_more_requests_is_rejected_within_three_minutes_unless_a_dependency_is_out(
    before: float, now: float, is_refused: bool
) -> None:
    service = SimulatedService(4, 6)
    service.failed_shares = {OLD.version: before, NEW.version: now}
    service.desired = NEW
    service.run_until(lambda: NEW in service.releases, 40)
    service.run(3)  # one instance runs it, the others run the old release
    assert (service.rollout.rejected == NEW.version) is is_refused


@pytest.mark.parametrize("fault", ["well", "fails all"])
def test_without_requests_a_release_reaches_all_hosts_and_can_still_be_rolled_back(fault: Fault) -> None:
    service = SimulatedService(2, 4, waiting_requests=0, worker_rate=0.0)
    service.faults[NEW.version] = fault
    service.desired = NEW
    service.run_until(lambda: set(service.releases) == {NEW}, 120)
    service.run(120)
    # Nothing is left to do: no surge, and no incident about a stalled rollout.
    assert (service.last_decision.rollout.request, service.messages) == (NO_REQUEST, [])
    assert service.rollout.stable == OLD
    service.worker_rate = 0.5
    service.run(40)
    expected = OLD if fault == "fails all" else NEW
    assert service.rollout.stable == expected
    assert set(service.releases) == {expected}


def test_a_release_without_reported_requests_waits_an_hour_and_is_rolled_back() -> None:
    service = SimulatedService(4, 6)
    service.silent = {NEW.version}
    service.desired = NEW
    service.run_until(lambda: NEW in service.releases, 40)
    service.run(58)
    assert service.verified == []
    assert service.releases.count(NEW) == 1
    service.run_until(lambda: service.all_run(OLD), 20)
    assert service.rollout.rejected == NEW.version
    assert "report no requests" in service.rollout.rejection_reason


def test_while_most_requests_fail_with_both_releases_no_further_instance_restarts() -> None:
    service = SimulatedService(10, 14)
    service.desired = NEW
    service.run_until(lambda: len(service.verified) >= 3, 120)
    service.failed_since = service.now
    service.run(12)  # restarts that were requested before are done
    trying = service.releases.count(NEW)
    service.run(60)
    assert service.releases.count(NEW) == trying
    assert service.rollout.rejected == ""
    service.failed_since = None
    service.run_until(lambda: service.all_run(NEW), 120)


def test_a_comparison_that_decides_nothing_raises_an_incident_before_the_release_goes_on() -> None:
    service = SimulatedService(4, 6)
    service.failed_shares = {NEW.version: 0.025}  # as many more as allowed
    service.desired = NEW
    service.run_until(lambda: STALLED in service.messages, 90)
    assert service.releases.count(NEW) == 1
    description = next(iter(service.memory.incidents.values())).description
    assert "Too few requests tell whether it fails more: " in description
    service.run_until(lambda: service.all_run(NEW), 90)


@pytest.mark.parametrize("restart_seconds", [400.0, 880.0])
def test_a_restart_that_takes_long_within_its_timeout_is_no_fault_of_the_release(
    restart_seconds: float,
) -> None:
    service = SimulatedService(8, 12, restart_seconds=restart_seconds)
    service.roll_out(NEW, 180)
    assert service.messages == []


FAULTS = st.sampled_from(("well", "well", *BAD))


@given(
    target=st.integers(1, 12),
    room=st.integers(0, 4),
    faults=st.fixed_dictionaries({NEW.version: FAULTS, THIRD.version: FAULTS}),
    releases=st.lists(st.sampled_from((OLD, NEW, THIRD)), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    hourly=st.sampled_from((0.0, 0.1, 0.5)),
)
def test_a_serving_host_is_restarted_only_if_nine_tenths_serve_without_it(
    target: int, room: int, faults: dict[str, str], releases: list[object], seed: int, hourly: float
) -> None:
    service = SimulatedService(target, target + room, faults=faults)  # type: ignore[arg-type]
    interrupt = churn(service, seed, hourly)
    for desired in releases:
        service.desired = desired  # type: ignore[assignment]
        for _ in range(20):
            interrupt()
            service.run(1)
    assert service.violations == []
    rollbacks = [key for key in service.messages if key.startswith("roll-back")]
    assert len(rollbacks) <= len(releases)
    assert service.row.stable.version in {OLD.version, NEW.version, THIRD.version}
    if faults[NEW.version] == "never ready":
        assert service.row.stable != NEW


@given(st.integers(0, 10**10), st.integers(0, 99), st.lists(st.text(max_size=19), max_size=MAX_REQUESTS))
def test_the_request_to_the_controller_survives_as_text(at: int, surge: int, restarting: list[str]) -> None:
    request = RolloutRequest(at, surge, tuple(restarting))
    assert parse(dump(request)) == request
    assert (dump(NO_REQUEST), parse("{}")) == ("{}", NO_REQUEST)


def test_of_every_kind_the_releases_that_the_rule_looks_at_end_right() -> None:
    result = rollout.summarise(rollout.play(0))
    assert rollout.mistakes(result) == []
    assert sum(row["cases"] for row in result["rows"]) == 57
    assert sum(row["undecided"] for row in result["rows"]) == 0
    assert rollout.page(result).count("\n| ") == 1 + len(result["rows"])


@pytest.mark.parametrize("has_outage", [False, True])
def test_a_good_release_reaches_all_instances(has_outage: bool) -> None:
    results = [JudgedRollout(Case(0.01, 1.0, has_outage, 8), seed).run() for seed in range(6)]
    assert {result.verdict for result in results} == {"accepted"}


def test_a_release_that_fails_all_requests_gets_few() -> None:
    results = [JudgedRollout(Case(1.0, 1.0, False, 8), seed).run() for seed in range(6)]
    assert max(result.requests for result in results) <= 300
    assert all("requests failed (100.0%)" in result.reason for result in results)


def test_faults_of_a_host_and_usual_crashes_are_not_blamed_on_the_release() -> None:
    service = SimulatedService(4, 6)
    service.desired = NEW
    service.run_until(lambda: NEW in service.releases, 40)
    service.run(1)
    memory, [host] = service.rollout, service.rollout.hosts
    for kind, remaining in ((HealthVerdict.MISSING, 0), (HealthVerdict.XID, 1)):
        found = [HostFinding(kind, host, service.now)]
        step = plan_step(service.snapshot(), found, service.settings, DesiredRelease(NEW), memory)
        assert len(step.findings) == remaining  # left to the health checker
    service.instances[host].starts += 5
    for old_starts, rejected in ((0, NEW.version), (20, "")):
        compared = replace(memory.comparison, crashes=Paired(20, 5, 60, old_starts))
        memory = replace(memory, comparison=compared)
        step = plan_step(service.snapshot(), [], service.settings, DesiredRelease(NEW), memory)
        assert step.memory.rejected == rejected
