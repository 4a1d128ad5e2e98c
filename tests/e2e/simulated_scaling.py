"""The deployed scaler on a deployed service: changing load, an unreachable queue, stalled workers.

Queue and workers are simulated by the minute; functions, groups and instances are the local cloud's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from contracts import names
from contracts.registry import queue_state as backlog
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto import changes
from pulumi_on_moto.running.functions import Call
from tests.e2e.calls import Authorisation, of_function
from tests.e2e.world import CAPACITY, START, World, living, load
from tests.iam import Request

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


class Stage:
    """A service with queue and workers in a local cloud, simulated minute by minute."""

    def __init__(self, world: World, outcome: Outcome) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.outcome = outcome
        self.now = START + 24 * 3600.0
        self.waiting = 0.0
        self.launched: dict[str, float] = {}
        self.queue_state: QueueState | None = None
        self._dynamodb = world.clients("dynamodb")
        self._registry: str = world.deployment.outputs["registryTable"]
        self._requests: dict[str, Request] = {}
        self._recorded: set[tuple[str, object]] = set()
        self._authorisation = Authorisation(world.clients)
        self.cloud.listen(self._on_call)

    def _on_call(self, call: Call) -> None:
        if call.operation == "PutParameter":
            function = next(
                (candidate for candidate in ("scaler", "health-checker") if f"-{candidate}" in call.function),
                "",
            )
            self.outcome.writers.add((function, call.params["Name"].rpartition("/")[2]))
        once = (call.operation, call.params.get("TableName"))
        if "-scaler" in call.function and once not in self._recorded:
            self._recorded.add(once)
            for request in self._authorisation.requests(call):
                self._requests.setdefault(repr(request), request)

    def permissions(self) -> tuple[list[dict[str, Any]], list[Request]]:
        """Return the policies of the scaler's role, and its observed requests."""
        return of_function(self.world.deployment, "-scaler"), list(self._requests.values())

    def play(
        self, phase: str, minutes: int, rate: float, *, is_reported: bool = True, works: bool = True
    ) -> list[Minute]:
        """Simulate a phase with a request rate; without ``is_reported`` there is no queue state."""
        found = [self._minute(rate, is_reported=is_reported, works=works) for _ in range(minutes)]
        self.outcome.minutes.setdefault(phase, []).extend(found)
        return found

    def _minute(self, rate: float, *, is_reported: bool, works: bool) -> Minute:
        self.now += 60
        self.cloud.set_time(self.now)
        view = self.world.view
        for _ in range(self.cloud.desired(self.group)[0] - self.cloud.counted(self.group, GroupRole.PRIMARY)):
            one = self.cloud.launch(
                self.group, GroupRole.PRIMARY, view.instance_types[0], view.zones[0], PurchaseOption.SPOT
            )
            self.launched[one] = self.now
        alive = self.cloud.alive(self.group)
        ready = sorted(one for one in alive if self.now - self.launched.get(one, 0.0) >= BOOT_SECONDS)
        can = WORKER_RATE * len(ready) * works
        done = min(can, rate + self.waiting / 60)
        self.waiting = max(0.0, self.waiting + 60 * (rate - done))
        for one in ready:
            self.cloud.override_reports(one, _ends(done / len(ready)))
        self.cloud.heartbeat(ready)
        if is_reported:
            oldest = self.waiting / max(can, 0.1)
            taken = len(ready) if rate or self.waiting else 0
            seen = QueueState(self.now - 20, int(self.waiting), taken, oldest, rate, done, len(ready))
            self._dynamodb.put_item(TableName=self._registry, Item=backlog.dump(self.group, seen))
        self.cloud.tick_schedule()
        gauges: dict[str, float] = {}
        reasons: list[str] = []
        for run in self.cloud.run_functions():
            assert not run.error, run.error
            for line in run.log:
                entry = json.loads(line) if line.startswith("{") else {}
                gauges |= {key: value[0] for key, value in entry.items() if key.startswith("Scaling")}
                reasons += entry.get("reasons", [])
        self.cloud.let_go(self.group)
        return Minute(rate, self.waiting, self.target, len(alive), gauges, reasons)

    @property
    def target(self) -> int:
        """Value of the target parameter."""
        name = names.group_parameter(self.world.deployment.stack, self.group, names.PARAMETER_TARGET)
        return int(self.world.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"])


def _ends(rate: float) -> Callable[[WorkerReport], WorkerReport]:
    return lambda report: replace(report, rate=rate, gpu_use=100 * rate / WORKER_RATE)


def simulate_all() -> Outcome:
    """Simulate rising load, missing data, a night without requests, and the first requests after it."""
    config = load("dev", CHANGES)
    found = Outcome()
    with living(config) as world:
        stage = Stage(world, found)
        stage.play("begin", 8, 1.5)
        stage.play("rise", 8, 4.0)
        found.second_up = len(changes(world.deployment, config))
        stage.play("silence", 13, 4.0, is_reported=False)
        stage.play("recovery", 2, 4.0)
        stage.play("stall", 7, 4.0, works=False)
        stage.play("night", 32, 0.0)
        stage.play("wake", 4, 0.5)
        found.permissions = stage.permissions()
    return found
