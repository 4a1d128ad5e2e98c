"""Look at a deployed stack through boto3: its groups as the controller looks at them, its alarms, its log."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from contracts import names
from contracts.registry.item import Worker
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.reader import JobReader
from gpu_spot.jobs.timeline import Story, tell
from gpu_spot.status.decisions import DecisionLine, told
from gpu_spot.status.seen import (
    AlarmSeen,
    DeclaredEntries,
    GroupSeen,
    StackSeen,
    WorkerPhase,
    WorkersSeen,
)
from lambdas.aws import settings
from lambdas.aws.budget import UNLIMITED, Budget
from lambdas.aws.capacity.capacity_service import GoneError
from lambdas.aws.capacity.observe import Observer
from lambdas.aws.capacity.services import capacity_services
from lambdas.aws.capacity.spot_prices import SpotPrices
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import Registered, RegistryReader
from lambdas.aws.settings import GroupSettings
from lambdas.core.money import costs

LOOK_BACK: Final = 3 * 3600.0
"""Seconds of the controller's log that are read for its last decisions."""
MOST_DECISIONS: Final = 8
_LOG_PAGES: Final = 10
"""A page of CloudWatch Logs ends after 1 MB that was searched, or 10,000 events that fit."""
_ACTED: Final = '{ $.message = "decision" && $.actions[0].action = "*" }'
"""CloudWatch Logs' pattern for decisions at which something was done; the minute's others are left there."""


@dataclass(frozen=True)
class _HeardOnce(RegistryReader):
    """A registry that is read once for each group, by whoever asks."""

    _kept: dict[str, Registered] = field(default_factory=dict)

    def _partition(self, partition: str, budget: Budget) -> Registered:
        if partition not in self._kept:
            self._kept[partition] = RegistryReader(self.dynamodb, self.table)._partition(partition, budget)
        return self._kept[partition]


class StackReader:
    """Sees one deployed stack.

    Args:
        clients: a boto3 client by the name of its service, the same each time.
        stack: the stack's name.
        region: where it is.
        declared: what the stack file says beside.
        now: as in `JobReader`.
    """

    def __init__(
        self,
        clients: Callable[[str], Any],
        stack: str,
        region: str,
        declared: DeclaredEntries,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._clients, self._stack, self._region, self._declared = clients, stack, region, declared
        self._jobs = JobReader(clients, stack, region, now)
        self._calls = 0
        self._log: str | None = None
        for service in ("autoscaling", "cloudwatch", "dynamodb", "ec2", "logs", "ssm"):
            clients(service).meta.events.register("before-call", self._count, unique_id=f"status-{id(self)}")

    def look(self, only: str | None = None) -> StackSeen:
        """Return the stack now, or one of its groups.

        Calls, all reads: one for each ten parameters, each hundred alarms and each that rings; for each
        group as the controller's own look, and one for its memory; of its log at most ten; for jobs as
        `JobReader.all`. Raises ``ValueError`` where the stack or the group is not there.
        """
        self._calls = 0
        tables, root = self._jobs.tables, names.parameter_root(self._stack)
        found, errors = settings.read(self._clients("ssm"), root)
        now = self._jobs.time()
        if only is not None and only not in {*found, *errors}:
            known = ", ".join(sorted({*found, *errors})) or "none"
            raise ValueError(f"--group is {only!r}, the groups of stack {self._stack!r} are {known}")
        registry = _HeardOnce(self._clients("dynamodb"), tables.registry)
        memory = MemoryStore(self._clients("dynamodb"), tables.memory)
        groups = [
            *(GroupSeen(name, trouble=str(error)) for name, error in errors.items() if only in (None, name)),
            *(self._group(one, registry, memory, now) for name, one in found.items() if only in (None, name)),
        ]
        jobs = self._jobs.listed()
        seen = StackSeen(
            stack=self._stack,
            region=self._region,
            now=now,
            alarms=tuple(self._alarms()),
            groups=tuple(sorted(groups, key=lambda one: one.name)),
            decisions=tuple(self._decisions(now, only)),
            jobs=tuple(job for job in jobs if only in (None, job.seen.name, job.seen.group)),
            declared=self._declared,
            calls=0,
        )
        return replace(seen, calls=self._calls)

    def story(self, job: str) -> Story:
        """Return where a job was and what it lost, without money; calls and errors as `JobReader.one`."""
        return tell(self._jobs.one(job), PriceBook(lambda _: None))

    def _count(self, **_: Any) -> None:
        self._calls += 1

    def _group(
        self, one: GroupSettings, registry: RegistryReader, memory: MemoryStore, now: float
    ) -> GroupSeen:
        ec2 = self._clients("ec2")
        capacity = capacity_services(self._clients("autoscaling"), ec2)
        name = one.group.name
        seen = GroupSeen(
            name,
            one.group.target,
            one.group.control.mode.value,
            one.group.run,
            drain_seconds=one.group.drain_seconds,
        )
        try:
            observation = Observer(self._stack, capacity, ec2, registry).observe(one, now, UNLIMITED)
        except GoneError as error:
            return replace(seen, trouble=str(error))
        remembered, unpriced = SpotPrices(ec2).refresh(one, memory.load(name).memory, now)
        observation = replace(observation, spot_prices=remembered.spot_prices)
        heard = {names.ORIGIN_AWS: registry.read(name, UNLIMITED)}
        if one.config.on_premises:
            heard[names.ORIGIN_ON_PREMISES] = registry.elsewhere(name, UNLIMITED)
        return replace(
            seen,
            instances=observation.instances,
            elsewhere=observation.elsewhere or 0,
            workers=tuple(_workers(heard, {i.id for i in observation.instances}, now)),
            cost=costs.hourly(observation, one.config.on_demand_prices),
            unread=(*observation.troubles, *([unpriced] if unpriced else [])),
        )

    def _alarms(self) -> Iterator[AlarmSeen]:
        cloudwatch = self._clients("cloudwatch")
        pages = cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=f"gpu-spot-{self._stack}-", StateValue="ALARM"
        )
        for one in (one for page in pages for one in page["MetricAlarms"] if one["StateValue"] == "ALARM"):
            # The name of another stack may begin with all of this one's: only the tag tells.
            tags = cloudwatch.list_tags_for_resource(ResourceARN=one["AlarmArn"])["Tags"]
            if {"Key": names.TAG_STACK, "Value": self._stack} in tags:
                since = one["StateUpdatedTimestamp"].timestamp()
                yield AlarmSeen(one["AlarmName"], since, one.get("AlarmDescription", ""))

    def _decisions(self, now: float, only: str | None) -> list[DecisionLine]:
        logs, group = self._clients("logs"), self._controller_log()
        if group is None:
            return []
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=group,
            startTime=round(1000 * (now - LOOK_BACK)),
            endTime=round(1000 * now) + 1,
            filterPattern=_ACTED,
        )
        events = (event for page in islice(pages, _LOG_PAGES) for event in page["events"])
        found = [one for one in map(_decision, events) if one is not None and only in (None, one.group)]
        return sorted(found, key=lambda one: -one.at)[:MOST_DECISIONS]

    def _controller_log(self) -> str | None:
        """Return the controller's log group, None where there is none; looked for once."""
        if self._log is None:
            short = f"gpu-spot-{self._stack}-controller"
            ours = re.compile(rf"{re.escape(short)}(-[0-9a-f]{{7}})?")  # with what Pulumi appends
            pages = self._clients("logs").get_paginator("describe_log_groups")
            found = pages.paginate(logGroupNamePrefix=short)
            listed = (one["logGroupName"] for page in found for one in page["logGroups"])
            self._log = next(filter(ours.fullmatch, listed), None)
        return self._log


def _decision(event: Mapping[str, Any]) -> DecisionLine | None:
    """Return what a line of the controller's log says, None where it tells no decision to act."""
    try:
        line = json.loads(event["message"])
    except ValueError:
        return None
    if not isinstance(line, dict) or line.get("message") != "decision" or not line.get("actions"):
        return None
    actions = tuple(told(action) for action in line["actions"])
    return DecisionLine(event["timestamp"] / 1000, line["group"], actions, line["reason"])


def _workers(heard: Mapping[str, Registered], live: Collection[str], now: float) -> Iterator[WorkersSeen]:
    """Yield the workers of a group; rows of instances that have ended stay for an hour, and are left out."""
    counts: Counter[tuple[str, str, WorkerPhase]] = Counter()
    for origin, registered in heard.items():
        for instance, workers in registered.workers.items():
            if origin == names.ORIGIN_AWS and instance not in live:
                continue
            for worker in workers:
                version = worker.pulse.version if worker.pulse else ""
                counts[(origin, version, _phase(worker, now))] += 1
    for (origin, version, phase), count in sorted(counts.items()):
        yield WorkersSeen(origin, version, phase, count)


def _phase(worker: Worker, now: float) -> WorkerPhase:
    if not worker.is_fresh(now):
        return "silent"
    return "draining" if worker.deadline is not None else worker.state
