"""The deployed scaler on a deployed service: rising load, an unreachable queue.

Queue and workers are simulated by the minute; functions, groups and instances are the local cloud's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from contracts import names
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from pulumi_on_moto import changes
from tests.apart import apart
from tests.e2e.stage import Stage
from tests.e2e.world import CAPACITY, World, living, load
from tests.iam import Request, allowed_actions, allows

WORKER_RATE = 0.5
"""Requests per second of a worker."""
BOOT_SECONDS = 120.0
MAX_TARGET = 14
SERVICE = "services[0]"
CHANGES = {
    f"{SERVICE}.command": ["serve"],
    f"{SERVICE}.queue": {"kind": "rabbitmq", "existing": {"secret": "queues/inference"}},
    f"{SERVICE}.scaling": {"waitSeconds": 60, "min": 0},
    f"{CAPACITY}.target": 2,
    f"{CAPACITY}.max": MAX_TARGET,
    f"{CAPACITY}.fallback": {"enabled": False},
}


@dataclass
class Minute:
    """A minute: request rate, waiting requests, target, instances, the scaler's metrics."""

    rate: float
    waiting: float
    target: int
    running: int
    gauges: dict[str, float]
    reasons: list[str]


@dataclass
class Outcome:
    """Minutes by phase; writers of parameters; the scaler's role and requests."""

    minutes: dict[str, list[Minute]] = field(default_factory=dict)
    writers: set[tuple[str, str]] = field(default_factory=set)
    second_up: int = -1
    permissions: tuple[list[dict[str, Any]], list[Request]] = ([], [])


class ScaledService(Stage):
    """A service with queue and workers in a local cloud, simulated minute by minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "scaler")
        self.waiting = 0.0
        self.minutes: dict[str, list[Minute]] = {}

    def play(self, phase: str, minutes: int, rate: float, *, is_reported: bool = True) -> None:
        """Simulate a phase with a request rate; without ``is_reported`` there is no queue state."""
        self.minutes[phase] = [self._minute(rate, is_reported=is_reported) for _ in range(minutes)]

    def _minute(self, rate: float, *, is_reported: bool) -> Minute:
        self.advance()
        self.launch_missing()
        alive = self.cloud.alive(self.group)
        ready = sorted(one for one in alive if self.now - self.launched.get(one, 0.0) >= BOOT_SECONDS)
        can = WORKER_RATE * len(ready)
        done = min(can, rate + self.waiting / 60)
        self.waiting = max(0.0, self.waiting + 60 * (rate - done))
        for one in ready:
            self.cloud.heartbeats.overrides[one] = _ends(done / len(ready))
        self.cloud.heartbeat(ready)
        if is_reported:
            oldest = self.waiting / max(can, 0.1)
            taken = len(ready) if rate or self.waiting else 0
            seen = QueueState(self.now - 20, int(self.waiting), taken, oldest, rate, done, len(ready))
            self.write_queue(seen)
        entries = self.run_functions()
        self.cloud.let_go(self.group)
        return Minute(
            rate,
            self.waiting,
            int(self.parameter(names.PARAMETER_TARGET)),
            len(alive),
            {key: line[key][0] for line in entries for key in line if key.startswith("Scaling")},
            [reason for line in entries for reason in line.get("reasons", [])],
        )


def _ends(rate: float) -> Callable[[WorkerReport], WorkerReport]:
    return lambda report: replace(report, rate=rate, gpu_use=100 * rate / WORKER_RATE)


def simulate_all() -> Outcome:
    """Simulate rising load, missing data, and the load again."""
    config = load("dev", CHANGES)
    with living(config) as world:
        stage = ScaledService(world)
        stage.play("begin", 8, 1.5)
        stage.play("rise", 8, 4.0)
        second_up = len(changes(world.deployment, config))
        stage.play("silence", 13, 4.0, is_reported=False)
        stage.play("recovery", 2, 4.0)
        return Outcome(stage.minutes, stage.writers, second_up, stage.permissions())


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> Outcome:
    return apart(simulate_all)


def test_the_target_follows_the_load(played: Outcome) -> None:
    begin, rise = played.minutes["begin"][-1], played.minutes["rise"]
    desired = names.METRIC_SCALING_DESIRED
    assert rise[1].gauges[desired] > begin.gauges[desired]  # one row may still tell of both
    assert rise[-1].target >= 8  # 4 a second are 8 workers at work
    assert rise[-1].running == rise[-1].target
    assert rise[-1].waiting < 60


def test_an_unreachable_queue_holds_the_target_and_raises_the_alarm(played: Outcome) -> None:
    silence = played.minutes["silence"]
    assert {minute.target for minute in silence} == {played.minutes["rise"][-1].target}
    blind = [minute.gauges.get(names.METRIC_SCALING_LOAD_UNKNOWN, 0.0) for minute in silence]
    # The last row is believed for three minutes; then for ten on end, as the alarm wants it.
    assert blind[:2] == [0.0, 0.0]
    assert blind[-10:] == [1.0] * 10
    assert "queue-unknown" in silence[-1].reasons
    assert names.METRIC_SCALING_LOAD_UNKNOWN not in played.minutes["recovery"][-1].gauges


def test_one_function_writes_the_target_and_a_second_up_leaves_it(played: Outcome) -> None:
    assert {writer for writer, parameter in played.writers if parameter == "target"} == {"scaler"}
    assert {parameter for writer, parameter in played.writers if writer == "scaler"} == {"target"}
    assert played.second_up == 0


def test_its_role_has_exactly_the_needed_permissions(played: Outcome) -> None:
    role, asked = played.permissions
    assert [request for request in asked if not allows(role, request)] == []
    used = {request.action for request in asked}
    assert allowed_actions(role) - used == {"logs:CreateLogStream", "logs:PutLogEvents"}  # Lambda's own
    for request in asked:
        if request.action == "dynamodb:PutItem":
            controllers = {**request.context, "dynamodb:LeadingKeys": ["inference"]}
            assert not allows(role, replace(request, context=controllers))
        if request.action == "ssm:PutParameter":
            for other in ("groups/inference/replacements", "groups/batch/target"):
                place = request.resource.partition("groups/")[0] + other
                assert not allows(role, replace(request, resource=place))
