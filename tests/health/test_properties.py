"""Invariants of the health checker for any sequence of events: the budget and the exemptions hold."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from lambdas.core.health.decision import HealthDecision, decide, mark_notified
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import Remedy, ServiceSnapshot, WorkerHost
from lambdas.core.health.remediation import max_unavailable
from tests.health.simulated_group import (
    START,
    SimulatedGroup,
    crashing,
    idle,
    missing,
    not_reporting,
    stuck,
    with_report,
    xid,
)

FAULTS = [
    not_reporting(),
    not_reporting(START + 7200),
    xid,
    idle,
    stuck,
    missing,
    crashing(),
    crashing(30, "v2"),
]


def nonsense(worker: Worker) -> Worker:
    """Return the worker with valid numbers that are implausible."""
    return with_report(
        worker, reported_at=0.0, done=2**62, failed=2**62, rate=1e300, gpu_use=0.0, starts=2**40, version=""
    )


HOSTS = [f"i-{n:02}" for n in range(12)] + ["gpu-1", "gpu-2", "gpu-3"]
EVENTS = st.one_of(
    st.tuples(st.just("break"), st.sampled_from(HOSTS), st.sampled_from([*FAULTS, nonsense])),
    st.tuples(st.just("mend"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("drain"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("goes"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("comes"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("queue"), st.none(), st.sampled_from([None, 0, 10])),
    st.tuples(st.just("jump"), st.none(), st.sampled_from([-3600.0, 600.0, 3700.0])),
    st.tuples(st.just("forget"), st.none(), st.none()),
)


def apply_event(group: SimulatedGroup, event: tuple[str, str | None, object]) -> None:
    match event:
        case ("break", str(host), value):
            group.faults[host] = value  # type: ignore[assignment]
        case ("mend", str(host), _):
            group.faults.pop(host, None)
        case ("drain", str(host), _) if host in group.hosts:
            group.hosts[host] = replace(group.hosts[host], exemption_reason="draining")
        case ("goes", str(host), _):
            group.hosts.pop(host, None)
        case ("comes", str(host), _) if host not in group.hosts:
            group.add(host, on_premises=host.startswith("gpu"), age=0.0)
        case ("queue", _, waiting):
            group.waiting_requests = waiting  # type: ignore[assignment]
        case ("jump", _, float(seconds)):
            group.now += seconds


def check_decision(
    decision: HealthDecision, snapshot: ServiceSnapshot, memory: HealthMemory, group: SimulatedGroup
) -> None:
    hosts: dict[str, WorkerHost] = {host.id: host for host in snapshot.hosts}
    at_once = max_unavailable(group.settings, len(hosts))
    for request in decision.replacement_requests:
        host = hosts[request.instance]
        assert not host.exemption_reason
        assert not host.is_on_premises
    new_entries = [entry for entry in decision.memory.log if entry not in memory.log]
    for restart in decision.restarts:
        assert not hosts[restart.instance].exemption_reason
    current = {
        host_id
        for host_id, record in memory.remediations.items()
        if record.remedy is Remedy.REPLACE and host_id in hosts
    }
    assert len(decision.replacement_requests) <= max(at_once, len(current))
    assert len(new_entries) <= at_once
    again = decide(snapshot, group.settings, mark_notified(decision.memory))
    assert (again.restarts, again.new_incidents, again.resolved_incidents) == ((), (), ())
    assert again.replacement_requests == decision.replacement_requests
    assert parse(dump(decision.memory)) == decision.memory


@given(st.lists(st.tuples(EVENTS, st.integers(0, 8)), max_size=25), st.integers(0, 100))
def test_the_budget_holds_and_no_exempt_or_on_premises_host_is_replaced(
    history: list[tuple[tuple[str, str | None, object], int]], percent: int
) -> None:
    group = SimulatedGroup(
        HealthSettings(grace_seconds=120, stall_timeout_seconds=120, max_unavailable_percent=percent)
    )
    group.add(*HOSTS[:12]).add(*HOSTS[12:], on_premises=True)
    started_at: deque[float] = deque()
    largest = 0
    for event, minutes in history:
        if event[0] == "forget":
            group.memory, started_at = HealthMemory(), deque()
        else:
            apply_event(group, event)
        if event[0] == "jump" and event[2] == -3600.0:
            started_at.clear()  # the clock was set back: the hour starts over
        for _ in range(minutes):
            group.now += 60
            snapshot, memory = group.snapshot(), group.memory
            decision = decide(snapshot, group.settings, memory)
            check_decision(decision, snapshot, memory, group)
            group.memory = mark_notified(decision.memory)
            largest = max(largest, len(snapshot.hosts))
            started_at += [e.at for e in decision.memory.log if e not in memory.log]
            while started_at and group.now - started_at[0] >= 3600:
                started_at.popleft()
            assert len(started_at) <= 2 * max_unavailable(group.settings, largest)
