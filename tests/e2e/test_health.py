"""The deployed health checker on a deployed service: each remedy simulated in one local cloud.

A phase ends with all instances healthy or replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from contracts import names
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.model import GroupRole
from tests.apart import apart
from tests.e2e.stage import Stage
from tests.e2e.world import World, living, load, small
from tests.iam import Request, allowed_actions, allows

SIZE = 6
HEALTH = {"graceSeconds": 60, "stallTimeoutSeconds": 60, "maxUnavailablePercent": 20, "dailyReportHour": 0}
CHANGES = {**small(SIZE), "services[0].health": HEALTH}


@dataclass
class Outcome:
    """Outcome of a phase: verdicts by instance in ``replacements``, ``restarted``, messages, alarm gauges."""

    unhealthy: list[str]
    replacements: dict[str, str] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    incidents: list[float] = field(default_factory=list)
    permissions: tuple[list[dict[str, Any]], list[Request]] = ([], [])


class CheckedService(Stage):
    """A healthy service in a local cloud that is simulated minute by minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "health-checker")
        self.cloud.set_time(self.now)
        self.fill()

    def fill(self) -> None:
        """Launch missing instances and wait longer than any grace period."""
        missing = SIZE - len(self.cloud.alive(self.group, GroupRole.PRIMARY))
        for _ in range(missing):
            self.launch()
        if missing > 0:
            self.play(120, 1800)  # boot and grace period

    def healthy(self, count: int = 1) -> list[str]:
        """Return the oldest instances; the newest ones could use up the daily limit of replacements."""
        alive = self.cloud.alive(self.group, GroupRole.PRIMARY)
        return sorted(alive, key=lambda one: (self.launched.setdefault(one, self.now), one))[:count]

    def play(self, *gaps: float, seen: Outcome | None = None) -> Outcome:
        """Run a pass after each of these seconds."""
        seen = seen or Outcome([])
        for gap in gaps:
            self.advance(gap)
            self.cloud.heartbeat(sorted(self.cloud.alive(self.group)))
            self.write_queue(QueueState(self.now - 10, 30, SIZE, 20.0, 3.0, 3.0, SIZE))
            for entry in self.run_functions():
                seen.incidents += entry.get(names.METRIC_HEALTH_INCIDENTS, [])
            requests = json.loads(self.parameter(names.PARAMETER_REPLACEMENT_REQUESTS))
            seen.replacements |= {instance: reason for instance, (_, reason) in requests.items()}
            self._restart(seen)
        seen.messages += self.messages()
        return seen

    def simulate(
        self, instances: list[str], override: Callable[[WorkerReport], WorkerReport], *gaps: float
    ) -> Outcome:
        """Override the reports of some instances for a while, then recover."""
        for one in instances:
            self.cloud.heartbeats.overrides[one] = override
        seen = self.play(*gaps, seen=Outcome(instances))
        for one in instances:
            del self.cloud.heartbeats.overrides[one]
        self._recover()
        return seen

    def _recover(self) -> None:
        """Wait until all incidents are resolved and the hourly budget is available again."""
        self.play(3700)
        self.fill()

    def _restart(self, seen: Outcome) -> None:
        """Restart workers on request, as the agents do."""
        for worker in self.cloud.workers(self.group):
            if worker.restart_requested_at is not None and worker.restart_requested_at > worker.since:
                seen.restarted.append(worker.instance)
                self.cloud.heartbeats.since[worker.instance] = self.now


def simulate_all() -> dict[str, Outcome]:
    """Simulate one verdict of each remedy on one instance, then a symptom of all instances."""
    with living(load("dev", CHANGES)) as world:
        stage = CheckedService(world)
        found = {"well": stage.play(60, 60)}
        found["xid"] = stage.simulate(stage.healthy(), lambda p: replace(p, xid=79), 60, 60)
        # A restart at the second pass; that it did not help is known a quarter of an hour later.
        found["stuck"] = stage.simulate(
            stage.healthy(), lambda p: replace(p, done=3, rate=0.0), 60, 60, 960, 60
        )
        found["broker"] = stage.simulate(
            stage.healthy(SIZE), lambda p: replace(p, done=3, rate=0.0), *[60.0] * 4
        )
        found["well"].permissions = stage.permissions()
        return found


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> dict[str, Outcome]:
    return apart(simulate_all)


def test_no_action_on_healthy_instances(played: dict[str, Outcome]) -> None:
    seen = played["well"]
    assert (seen.replacements, seen.restarted, seen.messages) == ({}, [], [])
    assert not any(seen.incidents)


def test_replacement_is_requested_without_a_message(played: dict[str, Outcome]) -> None:
    seen = played["xid"]
    assert seen.replacements == dict.fromkeys(seen.unhealthy, "xid")
    assert (seen.restarted, seen.messages) == ([], [])


def test_its_role_has_exactly_the_needed_permissions(played: dict[str, Outcome]) -> None:
    role, asked = played["well"].permissions
    assert [request for request in asked if not allows(role, request)] == []
    used = {request.action for request in asked}
    # Lambda writes the log; no message had to be sent where one is ill at a time, but the daily one.
    assert allowed_actions(role) - used == {"logs:CreateLogStream", "logs:PutLogEvents"}
    for request in asked:
        if request.action == "dynamodb:UpdateItem":
            state = {**request.context, "dynamodb:Attributes": ["group", "worker", "state"]}
            assert not allows(role, replace(request, context=state))
        if request.action == "dynamodb:PutItem":
            controllers = {**request.context, "dynamodb:LeadingKeys": ["inference"]}
            assert not allows(role, replace(request, context=controllers))
        if request.action == "ssm:PutParameter":
            target = request.resource.replace("/replacements", "/target")
            assert not allows(role, replace(request, resource=target))


def test_a_worker_is_restarted_and_replaced_if_that_does_not_help(played: dict[str, Outcome]) -> None:
    seen = played["stuck"]
    assert seen.restarted == seen.unhealthy
    assert seen.replacements == dict.fromkeys(seen.unhealthy, "stuck")
    assert seen.messages == []


def test_a_shared_cause_replaces_no_instance_and_sends_one_message(played: dict[str, Outcome]) -> None:
    seen = played["broker"]
    assert (seen.replacements, seen.restarted) == ({}, [])
    messages = [message for message in seen.messages if "over: " not in message]
    assert messages == ["dev/inference: common/unfinished/version rehearsed"]
    assert seen.incidents[-1] >= 1.0
