"""Whatever workers, instances and people do: the budget holds, and who is to be let alone is."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from lambdas.core.health.decision import HealthDecision, decide, told
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import Remedy, Sight, WorkerHost
from lambdas.core.health.treatment import most_at_once
from tests.health.scenes import START, Play, crashing, idle, missing, pulse, silent, stuck, xid

BREAKS = [silent(), silent(START + 7200), xid, idle, stuck, missing, crashing(), crashing(30, "v2")]


def nonsense(worker: Worker) -> Worker:
    """Numbers that are allowed and mean nothing."""
    return pulse(worker, at=0.0, done=2**62, failed=2**62, rate=1e300, gpu_use=0.0, starts=2**40, version="")


HOSTS = [f"i-{n:02}" for n in range(12)] + ["gpu-1", "gpu-2", "gpu-3"]
EVENTS = st.one_of(
    st.tuples(st.just("break"), st.sampled_from(HOSTS), st.sampled_from([*BREAKS, nonsense])),
    st.tuples(st.just("mend"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("drain"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("goes"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("comes"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("queue"), st.none(), st.sampled_from([None, 0, 10])),
    st.tuples(st.just("jump"), st.none(), st.sampled_from([-3600.0, 600.0, 3700.0])),
    st.tuples(st.just("forget"), st.none(), st.none()),
)


def happen(group: Play, event: tuple[str, str | None, object]) -> None:
    match event:
        case ("break", str(host), how):
            group.breaks[host] = how  # type: ignore[assignment]
        case ("mend", str(host), _):
            group.breaks.pop(host, None)
        case ("drain", str(host), _) if host in group.hosts:
            group.hosts[host] = replace(group.hosts[host], spared="draining")
        case ("goes", str(host), _):
            group.hosts.pop(host, None)
        case ("comes", str(host), _) if host not in group.hosts:
            group.add(host, on_premises=host.startswith("gpu"), age=0.0)
        case ("queue", _, waiting):
            group.waiting = waiting  # type: ignore[assignment]
        case ("jump", _, float(seconds)):
            group.now += seconds


def check(decision: HealthDecision, sight: Sight, before: HealthMemory, group: Play) -> None:
    hosts: dict[str, WorkerHost] = {host.id: host for host in sight.hosts}
    at_once = most_at_once(group.settings, len(hosts))
    for wish in decision.wishes:
        host = hosts[wish.instance]
        assert not host.spared
        assert not host.on_premises
    new = [entry for entry in decision.memory.log if entry not in before.log]
    for one in decision.restarts:
        assert not hosts[one.instance].spared
    lasting = {h for h, one in before.treated.items() if one.step is Remedy.REPLACE and h in hosts}
    assert len(decision.wishes) <= max(at_once, len(lasting))
    assert len(new) <= at_once
    again = decide(sight, group.settings, told(decision.memory))
    assert (again.restarts, again.begun, again.over) == ((), (), ())
    assert again.wishes == decision.wishes
    assert parse(dump(decision.memory)) == decision.memory


@given(
    st.lists(st.tuples(EVENTS, st.integers(0, 8)), max_size=25),
    st.integers(0, 100),
)
def test_the_budget_holds_and_nobody_is_wished_for_who_is_to_be_let_alone(
    history: list[tuple[tuple[str, str | None, object], int]], most: int
) -> None:
    group = Play(HealthSettings(grace_seconds=120, stuck_seconds=120, most_at_once=most))
    group.add(*HOSTS[:12]).add(*HOSTS[12:], on_premises=True)
    begun: deque[float] = deque()
    largest = 0
    for event, minutes in history:
        if event[0] == "forget":
            group.memory, begun = HealthMemory(), deque()
        else:
            happen(group, event)
        if event[0] == "jump" and event[2] == -3600.0:
            begun.clear()  # a clock that was set back knows no hour
        for _ in range(minutes):
            group.now += 60
            sight, before = group.sight(), group.memory
            decision = decide(sight, group.settings, before)
            check(decision, sight, before, group)
            group.memory = told(decision.memory)
            largest = max(largest, len(sight.hosts))
            begun += [e.at for e in decision.memory.log if e not in before.log]
            while begun and group.now - begun[0] >= 3600:
                begun.popleft()
            assert len(begun) <= 2 * most_at_once(group.settings, largest)
