"""The deployed health checker over a deployed service: each verdict played, in one local cloud.

A scene is about an instance of its own, and ends with it well again or gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from moto.sns.models import sns_backends

from lambdas.core import backlog, names, registry_item
from lambdas.core.backlog import Backlog
from lambdas.core.model import Market, Side
from lambdas.core.pulse import Pulse
from lambdas.core.registry_item import Worker
from pulumi_on_moto.sandbox import ACCOUNT
from tests.e2e.world import START, World, living, load, small

SIZE = 6
HEALTH = {"graceSeconds": 60, "stuckSeconds": 60, "mostAtOnce": 20, "digest": 0}
CHANGES = {**small(SIZE), "services[0].health": HEALTH}


@dataclass
class Seen:
    """What a scene led to: verdicts by instance in ``wished``, ``restarted``, messages, alarm gauges."""

    ill: list[str]
    wished: dict[str, str] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    incidents: list[float] = field(default_factory=list)


class Stage:
    """A service whose instances all work, in a cloud that is played minute by minute."""

    def __init__(self, world: World) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.now = START + 24 * 3600.0
        self.silent: set[str] = set()
        self.registry: str = world.deployment.outputs["registryTable"]
        self.dynamodb = world.clients("dynamodb")
        self._told = 0
        self.cloud.set_time(self.now)
        self.fill()

    def fill(self) -> None:
        """Launch what the group lacks, long enough ago for any grace."""
        view = self.world.view
        while len(self.cloud.alive(self.group, Side.PRIMARY)) < SIZE:
            self.cloud.launch(self.group, Side.PRIMARY, view.instance_types[0], view.zones[0], Market.SPOT)
        self.play(120, looks=1)  # their boot
        self.play(1800, looks=1)

    def well(self, count: int = 1) -> list[str]:
        return sorted(self.cloud.alive(self.group, Side.PRIMARY))[:count]

    def play(self, seconds: float, looks: int, seen: Seen | None = None) -> Seen:
        """Let so many seconds pass in so many looks; a minute apart where nothing else is asked for."""
        seen = seen or Seen([])
        for _ in range(looks):
            self.now += seconds / looks
            self.cloud.set_time(self.now)
            self.cloud.heartbeat(sorted(self.cloud.alive(self.group) - self.silent))
            self._queue()
            self.cloud.tick_schedule()
            for run in self.cloud.run_functions():
                assert not run.error, run.error
                seen.incidents += _gauges(run.log)
            seen.wished |= {i: reason for i, (_, reason) in self._wishes().items()}
            self._restart(seen)
        seen.told += self._messages()
        return seen

    def minutes(self, count: int, seen: Seen) -> Seen:
        return self.play(60.0 * count, count, seen)

    def scene(self, ill: list[str], told: Callable[[Pulse], Pulse], minutes: int) -> Seen:
        """Have the workers of some tell something for a while; then they are well again."""
        for one in ill:
            self.cloud.tell(one, told)
        seen = self.minutes(minutes, Seen(ill))
        for one in ill:
            self.cloud.tell(one, None)
        self.play(1800, 3)
        self.fill()
        return seen

    def _queue(self) -> None:
        """Requests wait, and come and go: as the queue's watcher says each minute."""
        item = backlog.dump(self.group, Backlog(self.now - 10, 30, SIZE, 20.0, 3.0, 3.0, SIZE))
        self.dynamodb.put_item(TableName=self.registry, Item=item)

    def _wishes(self) -> dict[str, Any]:
        name = names.group_parameter(self.world.deployment.stack, self.group, names.PARAMETER_WISHES)
        text = self.world.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"]
        found: dict[str, Any] = json.loads(text)
        return found

    def _restart(self, seen: Seen) -> None:
        """Do as the agents do whose workers are asked to start anew."""
        partition = {":g": {"S": self.group}}
        rows = self.dynamodb.query(
            TableName=self.registry,
            KeyConditionExpression="#g = :g",
            ExpressionAttributeNames={"#g": names.REGISTRY_KEY},
            ExpressionAttributeValues=partition,
        )["Items"]
        for worker in map(registry_item.parse, rows):
            if worker.restart is not None and worker.restart > worker.since:
                seen.restarted.append(worker.instance)
                self.cloud.restart_workers(worker.instance)

    def _messages(self) -> list[str]:
        topic = sns_backends[ACCOUNT][self.world.clients.region].topics[
            self.world.deployment.outputs["alarmTopic"]
        ]
        subjects = [str(sent[2]) for sent in topic.sent_notifications]
        new, self._told = subjects[self._told :], len(subjects)
        return [one for one in new if "needs you" not in one and "need you" not in one and "well" not in one]


def _gauges(log: tuple[str, ...]) -> Iterator[float]:
    for line in log:
        entry = json.loads(line) if line.startswith("{") else {}
        if names.METRIC_HEALTH_INCIDENTS in entry:
            [value] = entry[names.METRIC_HEALTH_INCIDENTS]
            yield float(value)


def verdicts() -> dict[str, Seen]:
    """Play one instance at a time."""
    with living(load("dev", CHANGES)) as world:
        stage = Stage(world)
        found = {"well": stage.minutes(3, Seen([]))}
        found["xid"] = stage.scene(stage.well(), lambda p: replace(p, xid=79), 2)
        found["stuck"] = stage.scene(stage.well(), lambda p: replace(p, done=3, rate=0.0), 20)
        found["idle-gpu"] = stage.scene(stage.well(), lambda p: replace(p, gpu_use=0.0), 20)
        began = stage.now
        found["crashing"] = stage.scene(
            stage.well(), lambda p: replace(p, starts=1 + int((p.at - began) // 60)), 6
        )
        stage.silent = set(stage.well())
        found["silent"] = stage.minutes(6, Seen(sorted(stage.silent)))
        stage.silent.clear()
        stage.fill()
        found["missing"] = _missing(stage)
        return found


def _missing(stage: Stage) -> Seen:
    """An instance from which nothing is ever heard, long after its boot."""
    view = stage.world.view
    one = stage.cloud.launch(stage.group, Side.PRIMARY, view.instance_types[1], view.zones[1], Market.SPOT)
    stage.silent = {one}
    stage.play(300, 1)
    seen = stage.minutes(7, Seen([one]))
    stage.silent.clear()
    return seen


def common_causes() -> dict[str, Seen]:
    """Play what all instances show at once, and what people alone can mend."""
    with living(load("dev", CHANGES)) as world:
        stage = Stage(world)
        everybody = stage.well(SIZE)
        began = stage.now
        found = {
            "bad image": stage.scene(
                everybody,
                lambda p: replace(p, version="bad", starts=1 + int((p.at - began) // 30), done=0, rate=0.0),
                20,
            )
        }
        found["broker"] = stage.scene(everybody, lambda p: replace(p, done=3, rate=0.0), 10)
        stage.silent = set(everybody)
        found["registry"] = stage.minutes(10, Seen(everybody))
        stage.silent.clear()
        stage.play(1800, 3)
        for one in everybody[:4]:
            stage.cloud.tell(one, lambda p: replace(p, version="new"))
        stage.play(120, 2)
        found["old version"] = stage.play(3 * 3600, 3, Seen(everybody[4:]))
        found["on premises"] = _site(stage)
        return found


def _site(stage: Stage) -> Seen:
    """Two machines of a site fall silent together."""
    rows = [
        Worker(names.on_premises_partition(stage.group), f"gpu-{n}", 0, stage.now, stage.now, "ready")
        for n in range(2)
    ]
    for row in rows:
        stage.dynamodb.put_item(TableName=stage.registry, Item=registry_item.dump(row))
    return stage.minutes(6, Seen([row.instance for row in rows]))
