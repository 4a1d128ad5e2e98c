"""The deployed health checker on a deployed service: each verdict simulated in one local cloud.

A phase ends with all instances healthy or replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from moto.sns.models import sns_backends

from contracts import names
from contracts.group import config as group_config
from contracts.registry import item as registry_item
from contracts.registry import queue_state as backlog
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.running.functions import Call
from pulumi_on_moto.sandbox import ACCOUNT
from tests.e2e.calls import Authorisation, of_function
from tests.e2e.world import START, World, living, load, small
from tests.iam import Request

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


class Stage:
    """A healthy service in a local cloud that is simulated minute by minute."""

    def __init__(self, world: World) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.now = START + 24 * 3600.0
        self.not_reporting: set[str] = set()
        self.since: dict[str, float] = {}
        self.registry: str = world.deployment.outputs["registryTable"]
        self.dynamodb = world.clients("dynamodb")
        self._message_count = 0
        self.requests: dict[str, Request] = {}
        self._recorded: set[tuple[str, object]] = set()
        self._authorisation = Authorisation(world.clients)
        self.cloud.listen(self._on_call)
        self.cloud.set_time(self.now)
        self.fill()

    def _on_call(self, call: Call) -> None:
        once = (call.operation, call.params.get("TableName"))
        if "health-checker" in call.function and once not in self._recorded:
            self._recorded.add(once)
            for request in self._authorisation.requests(call):
                self.requests.setdefault(repr(request), request)

    def role(self) -> list[dict[str, Any]]:
        """Return the policies of the health checker's role."""
        return of_function(self.world.deployment, "health-checker")

    def fill(self) -> None:
        """Launch missing instances and wait longer than any grace period."""
        view = self.world.view
        missing = SIZE - len(self.cloud.alive(self.group, GroupRole.PRIMARY))
        for _ in range(missing):
            kind, zone = view.instance_types[0], view.zones[0]
            self.since[self.cloud.launch(self.group, GroupRole.PRIMARY, kind, zone, PurchaseOption.SPOT)] = (
                self.now
            )
        if missing > 0:
            self.play(120, 1800)  # boot and grace period

    def healthy(self, count: int = 1) -> list[str]:
        """Return the oldest instances; the newest ones could use up the daily limit of replacements."""
        alive = self.cloud.alive(self.group, GroupRole.PRIMARY)
        return sorted(alive, key=lambda one: (self.since.setdefault(one, self.now), one))[:count]

    def play(self, *gaps: float, seen: Outcome | None = None) -> Outcome:
        """Run a pass after each of these seconds."""
        seen = seen or Outcome([])
        for gap in gaps:
            self.now += gap
            self.cloud.set_time(self.now)
            self.cloud.heartbeat(sorted(self.cloud.alive(self.group) - self.not_reporting))
            self._queue()
            self.cloud.tick_schedule()
            for run in self.cloud.run_functions():
                assert not run.error, run.error
                seen.incidents += _gauges(run.log)
            seen.replacements |= {i: reason for i, (_, reason) in self._replacement_requests().items()}
            self._restart(seen)
        seen.messages += self._messages()
        return seen

    def simulate(
        self, instances: list[str], override: Callable[[WorkerReport], WorkerReport], *gaps: float
    ) -> Outcome:
        """Override the reports of some instances for a while, then recover."""
        for one in instances:
            self.cloud.override_reports(one, override)
        seen = self.play(*gaps, seen=Outcome(instances))
        for one in instances:
            self.cloud.override_reports(one, None)
        self._recover()
        return seen

    def silence(self, instances: list[str], *gaps: float) -> Outcome:
        """Stop the heartbeats of some instances for a while."""
        self.not_reporting = set(instances)
        seen = self.play(*gaps, seen=Outcome(instances))
        self.not_reporting.clear()
        self._recover()
        return seen

    def _recover(self) -> None:
        """Wait until all incidents are resolved and the hourly budget is available again."""
        self.play(3700)
        self.fill()

    def _queue(self) -> None:
        """Write the queue state of a service under load, as the queue watcher does each minute."""
        item = backlog.dump(self.group, QueueState(self.now - 10, 30, SIZE, 20.0, 3.0, 3.0, SIZE))
        self.dynamodb.put_item(TableName=self.registry, Item=item)

    def _replacement_requests(self) -> dict[str, Any]:
        name = names.group_parameter(
            self.world.deployment.stack, self.group, names.PARAMETER_REPLACEMENT_REQUESTS
        )
        text = self.world.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"]
        found: dict[str, Any] = json.loads(text)
        return found

    def _restart(self, seen: Outcome) -> None:
        """Restart workers on request, as the agents do."""
        for worker in self.cloud.workers(self.group):
            if worker.restart_requested_at is not None and worker.restart_requested_at > worker.since:
                seen.restarted.append(worker.instance)
                self.cloud.restart_workers(worker.instance)

    def _messages(self) -> list[str]:
        topic = sns_backends[ACCOUNT][self.world.clients.region].topics[
            self.world.deployment.outputs["alarmTopic"]
        ]
        subjects = [str(sent[2]) for sent in topic.sent_notifications]
        new, self._message_count = subjects[self._message_count :], len(subjects)
        return [one for one in new if "need attention" not in one and "healthy" not in one]


def _gauges(log: tuple[str, ...]) -> Iterator[float]:
    for line in log:
        entry = json.loads(line) if line.startswith("{") else {}
        if names.METRIC_HEALTH_INCIDENTS in entry:
            [value] = entry[names.METRIC_HEALTH_INCIDENTS]
            yield float(value)


def simulate_all() -> dict[str, Outcome]:
    """Simulate each verdict on one instance, then symptoms of all instances."""
    with living(load("dev", CHANGES)) as world:
        stage = Stage(world)
        found = {"well": stage.play(60, 60)}
        found["xid"] = stage.simulate(stage.healthy(), lambda p: replace(p, xid=79), 60, 60)
        # A restart at the second pass; that it did not help is known a quarter of an hour later.
        found["stuck"] = stage.simulate(
            stage.healthy(), lambda p: replace(p, done=3, rate=0.0), 60, 60, 960, 60
        )
        found["idle-gpu"] = stage.simulate(
            stage.healthy(), lambda p: replace(p, gpu_use=0.0), 60, 60, 960, 60
        )
        found["crashing"] = stage.simulate(stage.healthy(), _starts_each(60, stage.now), *[60.0] * 6)
        found["silent"] = stage.silence(stage.healthy(), *[60.0] * 5)
        found["missing"] = _missing(stage)
        everybody = stage.healthy(SIZE)
        found["bad image"] = stage.simulate(everybody, _starts_each(30, stage.now, "bad"), *[60.0] * 6)
        found["broker"] = stage.simulate(everybody, lambda p: replace(p, done=3, rate=0.0), *[60.0] * 4)
        found["registry"] = stage.silence(everybody, *[60.0] * 5)
        new = everybody[:4]
        found["old version"] = stage.simulate(new, lambda p: replace(p, version="new"), 60, 7300, 60)
        found["on premises"] = _site(stage)
        found["well"].permissions = stage.role(), list(stage.requests.values())
        return found


def _starts_each(seconds: float, began: float, version: str = "") -> Callable[[WorkerReport], WorkerReport]:
    def override(report: WorkerReport) -> WorkerReport:
        starts = 1 + int((report.reported_at - began) // seconds)
        return replace(report, version=version or report.version, starts=starts, done=0, rate=0.0)

    return override


def _missing(stage: Stage) -> Outcome:
    """A replacement instance that never reports, long after its boot."""
    view = stage.world.view
    stage.cloud.kill(stage.healthy())
    one = stage.cloud.launch(
        stage.group, GroupRole.PRIMARY, view.instance_types[1], view.zones[1], PurchaseOption.SPOT
    )
    return stage.silence([one], 300, 300, 60)


def _site(stage: Stage) -> Outcome:
    """Two on-premises hosts stop reporting together."""
    hosts = {"gpu-0": 1, "gpu-1": 1}
    ssm = stage.world.clients("ssm")
    parameter = names.group_parameter(stage.world.deployment.stack, stage.group, names.PARAMETER_CONFIG)
    config = group_config.parse(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
    text = group_config.dumps(replace(config, on_premises_hosts=hosts))
    ssm.put_parameter(Name=parameter, Value=text, Overwrite=True)
    name = names.on_premises_partition(stage.group)
    rows = [
        Worker(registry_item.partition(name, host), host, 0, stage.now, stage.now, "ready") for host in hosts
    ]
    for row in rows:
        stage.dynamodb.put_item(TableName=stage.registry, Item=registry_item.dump(row))
    return stage.play(*[60.0] * 5, seen=Outcome([row.instance for row in rows]))
