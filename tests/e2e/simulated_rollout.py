"""A service in the local cloud whose image changes by `up`: a bad one, then a good one.

Functions, groups, instances and parameters are the local cloud's; agents are simulated here and select the
release as the node agent does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from moto.sns.models import sns_backends

from contracts.group.release import WorkerRelease
from contracts.registry import item as registry_item
from contracts.registry import queue_state as backlog
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto import up
from pulumi_on_moto.running.functions import Call
from pulumi_on_moto.sandbox import ACCOUNT
from tests.e2e.calls import Authorisation, of_function
from tests.e2e.world import CAPACITY, START, World, living, load
from tests.iam import Request
from userdata.agent.aws import releases

TARGET = 3
BOOT_SECONDS = 120.0
RESTART_SECONDS = 100.0
"""Seconds from a restart request until the worker runs again, with the download of its release."""
SERVICE = "services[0]"


def image(letter: str) -> str:
    return f"registry.example/ocr@sha256:{letter * 64}"


OLD, BAD, GOOD = map(image, "abc")


def changed(to: str) -> dict[str, Any]:
    return {
        f"{SERVICE}.image": to,
        f"{SERVICE}.health": {"stallTimeoutSeconds": 120, "maxUnavailablePercent": 60},
        f"{CAPACITY}.target": TARGET,
        f"{CAPACITY}.max": TARGET + 2,
        f"{CAPACITY}.fallback": {"enabled": False},
    }


@dataclass
class Rolled:
    """One `up` and its effects, by minute."""

    served: list[int] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    boots: str = ""
    """Image of a new instance at the end."""


@dataclass
class Outcome:
    """Both `up`s; writers of parameters; the health checker's role and requests."""

    bad: Rolled = field(default_factory=Rolled)
    good: Rolled = field(default_factory=Rolled)
    ended: set[str] = field(default_factory=set)
    replacements: set[str] = field(default_factory=set)
    writers: set[tuple[str, str]] = field(default_factory=set)
    permissions: tuple[list[dict[str, Any]], list[Request]] = ([], [])


@dataclass
class _Agent:
    """Workers of an instance: their release, start, and requested restart."""

    runs: WorkerRelease
    since: float
    restart_requested_at: float | None = None
    starts: int = 1


class Stage:
    """The service, simulated minute by minute."""

    def __init__(self, world: World, outcome: Outcome) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.outcome = outcome
        self.now = START + 24 * 3600.0
        self.agents: dict[str, _Agent] = {}
        self.launched: dict[str, float] = {}
        self._dynamodb = world.clients("dynamodb")
        self._registry: str = world.deployment.outputs["registryTable"]
        self._requests: dict[str, Request] = {}
        self._authorisation = Authorisation(world.clients)
        self._message_count = 0
        self.cloud.listen(self._on_call)

    def _on_call(self, call: Call) -> None:
        name = str(call.params.get("Name", ""))
        is_checker = "-health-checker" in call.function
        if call.operation == "PutParameter" and name.endswith("/wishes"):
            self.outcome.replacements.add(str(call.params["Value"]))
        if call.operation == "PutParameter":
            self.outcome.writers.add(("health" if is_checker else "other", name.rpartition("/")[2]))
        if is_checker and "Terminate" in call.operation:
            self.outcome.ended.add(call.operation)
        if is_checker and call.operation in ("PutParameter", "PutItem", "UpdateItem"):
            for request in self._authorisation.requests(call):
                self._requests.setdefault(repr(request), request)

    def permissions(self) -> tuple[list[dict[str, Any]], list[Request]]:
        """Return the policies of the health checker's role, and its observed write requests."""
        return of_function(self.world.deployment, "health-checker"), list(self._requests.values())

    def up(self, to: str, seen: Rolled, until: Callable[[], bool], most: int) -> None:
        """Deploy an image and simulate until a condition holds."""
        up(self.world.deployment, load("dev", changed(to)))
        for _ in range(most):
            self.minute(seen)
            if until():
                break
        else:
            raise AssertionError(f"not done in {most} minutes: {seen}")
        seen.boots = str(self._release("i-00000000").image)

    def minute(self, seen: Rolled) -> None:
        self.now += 60
        self.cloud.set_time(self.now)
        view = self.world.view
        for _ in range(self.cloud.desired(self.group)[0] - self.cloud.counted(self.group, GroupRole.PRIMARY)):
            one = self.cloud.launch(
                self.group, GroupRole.PRIMARY, view.instance_types[0], view.zones[0], PurchaseOption.SPOT
            )
            self.launched[one] = self.now
        alive = self.cloud.alive(self.group)
        for one in alive - self.agents.keys():
            if self.now - self.launched[one] >= BOOT_SECONDS:
                self.agents[one] = _Agent(self._release(one), self.now)
        self._work(alive)
        item = backlog.dump(self.group, QueueState(self.now - 10, 30, TARGET, 20.0, 3.0, 3.0, TARGET))
        self._dynamodb.put_item(TableName=self._registry, Item=item)
        self.cloud.tick_schedule()
        for run in self.cloud.run_functions():
            assert not run.error, run.error
        self._restart_requested(alive)
        self.cloud.let_go(self.group)
        here = [agent for one, agent in self.agents.items() if one in self.cloud.alive(self.group)]
        seen.served.append(
            sum(agent.restart_requested_at is None and agent.runs.image != BAD for agent in here)
        )
        seen.tried.append(sum(agent.runs.image == BAD for agent in here))
        seen.alive.append(len(self.cloud.alive(self.group)))
        seen.ends = {}
        for agent in here:
            seen.ends[agent.runs.image] = seen.ends.get(agent.runs.image, 0) + 1
        seen.messages += self._messages()

    def _work(self, alive: set[str]) -> None:
        reporting = []
        for name, agent in self.agents.items():
            if name not in alive:
                continue
            if (
                agent.restart_requested_at is not None
                and self.now - agent.restart_requested_at >= RESTART_SECONDS
            ):
                agent.runs, agent.since, agent.restart_requested_at = self._release(name), self.now, None
                agent.starts += 1
                self.cloud.restart_workers(name)
            if agent.runs.image == BAD:
                agent.starts += 2
            if agent.restart_requested_at is None:
                reporting.append(name)
                self.cloud.override_reports(name, _says(agent))
        self.cloud.heartbeat(sorted(reporting))

    def _restart_requested(self, alive: set[str]) -> None:
        """Deregister workers on a restart request and restart them with the current release, as agents do."""
        for worker in self.cloud.workers(self.group):
            is_requested = (
                worker.restart_requested_at is not None and worker.restart_requested_at > worker.since
            )
            if is_requested and worker.instance in alive:
                self.agents[worker.instance].restart_requested_at = self.now
                key = registry_item.key(worker.partition, worker.instance, worker.slot)
                self._dynamodb.delete_item(TableName=self._registry, Key=key)

    def _release(self, instance: str) -> WorkerRelease:
        found = releases.read(self._dynamodb, self._registry, self.group, instance)
        return found or WorkerRelease(OLD)

    def _messages(self) -> list[str]:
        topic = sns_backends[ACCOUNT][self.world.clients.region].topics[
            self.world.deployment.outputs["alarmTopic"]
        ]
        subjects = [str(sent[2]) for sent in topic.sent_notifications]
        new, self._message_count = subjects[self._message_count :], len(subjects)
        # Without the daily report and the message of the minutes before the first boot.
        return [one for one in new if not any(w in one for w in ("need attention", "healthy", "registry"))]


def _says(agent: _Agent) -> Callable[[WorkerReport], WorkerReport]:
    def report(current: WorkerReport) -> WorkerReport:
        return replace(current, version=agent.runs.version, starts=agent.starts)

    return report


def simulate_all() -> Outcome:
    """Simulate a running service, an image that crashes repeatedly, and a good image."""
    found = Outcome()
    with living(load("dev", changed(OLD))) as world:
        stage = Stage(world, found)
        first = Rolled()
        while stage.now < START + 24 * 3600.0 + 300:
            stage.minute(first)
        stage.up(
            BAD,
            found.bad,
            lambda: bool(found.bad.messages) and found.bad.served[-1] >= TARGET and not found.bad.tried[-1],
            40,
        )
        for _ in range(5):
            stage.minute(found.bad)
        stage.up(GOOD, found.good, lambda: found.good.ends == {GOOD: TARGET}, 60)
        for _ in range(3):
            stage.minute(found.good)
        found.permissions = stage.permissions()
    return found
