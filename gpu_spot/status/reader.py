"""Reads the state of a deployed stack: its groups as the controller sees them, its alarms, its log."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from contracts import names
from contracts.agent import version
from contracts.registry.item import Worker
from contracts.registry.tenant_wait import TenantWait
from gpu_spot.jobs.reader import JobReader
from gpu_spot.status import unknown_writers
from gpu_spot.status.decisions import DecisionLine, describe_action
from gpu_spot.status.images import count_images, read_images
from gpu_spot.status.snapshot import (
    ActiveAlarm,
    DeclaredEntries,
    GroupSnapshot,
    StackSnapshot,
    WorkerCount,
    WorkerPhase,
)
from gpu_spot.status.spot_requests import count_requests, read_requests
from gpu_spot.text import counted
from lambdas.aws import settings
from lambdas.aws.budget import UNLIMITED, Budget
from lambdas.aws.capacity.capacity_service import GroupNotFoundError
from lambdas.aws.capacity.capacity_updater import capacity_services
from lambdas.aws.capacity.observe import Observer
from lambdas.aws.capacity.spot_prices import SpotPrices
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import RegisteredWorkers, RegistryReader
from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import warm_pool_lacks_since
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.money import costs

_AGES: Final = (600.0, 3600.0, 3 * 3600.0)
"""Ages of controller log events: those up to the next are read if those before have too few decisions."""
MAX_DECISIONS: Final = 8
_LOG_PAGES: Final = 10
"""Maximum pages. A page of CloudWatch Logs ends after 1 MB searched or 10,000 matching events."""
_ACTED: Final = '{ $.message = "decision" && $.actions[0].action = "*" }'
"""CloudWatch Logs filter pattern for decisions with actions."""


@dataclass(frozen=True)
class _RecordingRegistryReader(RegistryReader):
    """A registry reader that records what it read, by origin and group."""

    read_by_origin: dict[str, dict[str, RegisteredWorkers]] = field(
        default_factory=lambda: {names.ORIGIN_AWS: {}, names.ORIGIN_ON_PREMISES: {}}
    )

    def read(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        registered = super().read(group, slots, budget)
        self.read_by_origin[names.ORIGIN_AWS][group] = registered
        return registered

    def read_on_premises(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        registered = super().read_on_premises(group, slots, budget)
        self.read_by_origin[names.ORIGIN_ON_PREMISES][group] = registered
        return registered

    @property
    def keys_read(self) -> set[tuple[str, str]]:
        """Partition and sort key of each worker that was read."""
        return {
            (worker.partition, f"{worker.instance}/{worker.slot}")
            for groups in self.read_by_origin.values()
            for registered in groups.values()
            for workers in registered.workers.values()
            for worker in workers
        }

    def registered(self, group: str) -> dict[str, RegisteredWorkers]:
        """Return a group's workers by origin, as they were read last."""
        return {origin: groups[group] for origin, groups in self.read_by_origin.items() if group in groups}


class StackReader:
    """Reads the state of one deployed stack.

    Args:
        clients: returns the boto3 client of a service, the same each time.
        stack: name of the stack.
        region: its region.
        declared: entries that only the stack file knows.
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
        self._log_group: str | None = None
        for service in ("autoscaling", "cloudwatch", "dynamodb", "ec2", "logs", "ssm"):
            clients(service).meta.events.register("before-call", self._count, unique_id=f"status-{id(self)}")

    def read(self, group_name: str | None = None) -> StackSnapshot:
        """Return the state of the stack, or of one of its groups.

        Calls, all read-only: one for each ten parameters, for each hundred alarms, for each active alarm, for
        each 1,000 Spot requests of the region and for each 1,000 instances and 100 images of the stack; at
        most twenty for the worker registry; for each group those of the controller's observation, and one for
        its memory; at most ten for its log; for jobs as `JobReader.read_all`. Raises ``ValueError`` if the
        stack or the group does not exist.
        """
        self._calls = 0
        tables, root = self._jobs.tables, names.parameter_root(self._stack)
        group_settings, errors = settings.read(self._clients("ssm"), root)
        now = self._jobs.time()
        if group_name is not None and group_name not in {*group_settings, *errors}:
            names_text = ", ".join(sorted({*group_settings, *errors})) or "none"
            raise ValueError(
                f"--group {group_name!r} is not in stack {self._stack!r}; its groups: {names_text}"
            )
        registry = _RecordingRegistryReader(
            self._clients("dynamodb"), tables.registry, self._jobs.registry.instance_arns
        )
        memory = MemoryStore(self._clients("dynamodb"), tables.memory)
        groups = [
            *(
                GroupSnapshot(name, error=str(error))
                for name, error in errors.items()
                if group_name in (None, name)
            ),
            *(
                self._group(settings_of_group, registry, memory, now)
                for name, settings_of_group in group_settings.items()
                if group_name in (None, name)
            ),
        ]
        groups = self._with_images(self._with_spot_requests(groups, now))
        groups = self._with_unknown_writers(groups, registry, now)
        jobs = self._jobs.reports()
        snapshot = StackSnapshot(
            stack=self._stack,
            region=self._region,
            now=now,
            alarms=tuple(self._alarms()),
            groups=tuple(sorted(groups, key=lambda group: group.name)),
            decisions=tuple(self._decisions(now, group_name)),
            jobs=tuple(job for job in jobs if group_name in (None, job.snapshot.name, job.snapshot.group)),
            declared=self._declared,
            calls=0,
        )
        return replace(snapshot, calls=self._calls)

    def _count(self, **_: Any) -> None:
        self._calls += 1

    def _group(
        self,
        group_settings: GroupSettings,
        registry: _RecordingRegistryReader,
        memory: MemoryStore,
        now: float,
    ) -> GroupSnapshot:
        ec2 = self._clients("ec2")
        capacity = capacity_services(self._clients("autoscaling"), ec2)
        name = group_settings.group.name
        snapshot = GroupSnapshot(
            name,
            group_settings.group.target,
            group_settings.group.control.mode.value,
            group_settings.group.config.run,
            now=now,
            drain_seconds=group_settings.group.config.drain_seconds,
            moves=group_settings.group.config.break_before_make,
        )
        try:
            observation = Observer(self._stack, capacity, ec2, registry).observe(
                group_settings, now, UNLIMITED
            )
        except GroupNotFoundError as error:
            return replace(snapshot, error=str(error))
        remembered, unpriced = SpotPrices(ec2).refresh(group_settings, memory.load(name).memory, now)
        observation = replace(observation, spot_prices=remembered.spot_prices)
        state = GroupState.from_observation(observation, remembered, now)
        deadlines = remembered.termination_deadlines
        return replace(
            snapshot,
            instances=tuple(
                replace(i, deadline=deadlines.get(i.id, i.deadline)) for i in observation.instances
            ),
            is_waiting=by_deadline.is_waiting(state, (), remembered.active_alarms),
            on_premises_slots=observation.on_premises_slots or 0,
            workers=tuple(_workers(registry.registered(name), {i.id for i in observation.instances}, now)),
            warm_pool_lacks_since=warm_pool_lacks_since(remembered, observation, now),
            warm_pool_lacks=observation.warm_pool_lacks or "",
            tenant_waits=_tenant_waits(registry.registered(name), now),
            cost=costs.hourly_cost(
                observation, group_settings.group.config.on_demand_prices, group_settings.group.target
            ),
            warnings=(
                *observation.read_errors,
                *([unpriced] if unpriced else []),
                *_other_agents(registry.registered(name), now),
            ),
        )

    def _with_spot_requests(self, groups: Sequence[GroupSnapshot], now: float) -> list[GroupSnapshot]:
        ec2 = self._clients("ec2")
        try:
            requests = list(read_requests(ec2)) if groups else []
        except ec2.exceptions.ClientError as error:
            return _with_warning(groups, f"Spot requests not read: {error}")
        return [
            replace(
                group,
                spot_requests=count_requests(
                    requests, self._stack, group.name, {i.id for i in group.instances}, now
                ),
            )
            for group in groups
        ]

    def _with_images(self, groups: Sequence[GroupSnapshot]) -> list[GroupSnapshot]:
        ec2 = self._clients("ec2")
        try:
            images = read_images(ec2, self._stack) if groups else {}
        except ec2.exceptions.ClientError as error:
            return _with_warning(groups, f"images not read: {error}")
        return [replace(g, images=count_images(images, [i.id for i in g.instances])) for g in groups]

    def _with_unknown_writers(
        self, groups: Sequence[GroupSnapshot], registry: _RecordingRegistryReader, now: float
    ) -> list[GroupSnapshot]:
        """Add a warning to groups with items of unknown writers, which the functions do not read."""
        dynamodb = self._clients("dynamodb")
        try:
            unknown = unknown_writers.find(dynamodb, registry.table, registry.keys_read, now)
        except dynamodb.exceptions.ClientError as error:
            return _with_warning(groups, f"items of unknown writers in the worker registry not read: {error}")
        return [
            replace(group, warnings=(*group.warnings, unknown_writers.warning(unknown[group.name])))
            if group.name in unknown and not group.error
            else group
            for group in groups
        ]

    def _alarms(self) -> Iterator[ActiveAlarm]:
        cloudwatch = self._clients("cloudwatch")
        pages = cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=f"gpu-spot-{self._stack}-", StateValue="ALARM"
        )
        for alarm in (a for page in pages for a in page["MetricAlarms"] if a["StateValue"] == "ALARM"):
            # Another stack's name may start with this stack's name: compare the tag.
            tags = cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]
            if {"Key": names.TAG_STACK, "Value": self._stack} in tags:
                since = alarm["StateUpdatedTimestamp"].timestamp()
                yield ActiveAlarm(alarm["AlarmName"], since, alarm.get("AlarmDescription", ""))

    def _decisions(self, now: float, group_name: str | None) -> list[DecisionLine]:
        logs, group = self._clients("logs"), self._controller_log()
        if group is None:
            return []
        decisions: list[DecisionLine] = []
        pages_left, end = _LOG_PAGES, round(1000 * now) + 1
        for begin in (round(1000 * (now - age)) for age in _AGES):  # a page has the oldest first
            paginator, span = logs.get_paginator("filter_log_events"), {"startTime": begin, "endTime": end}
            all_pages = paginator.paginate(logGroupName=group, filterPattern=_ACTED, **span)
            pages = list(islice(all_pages, pages_left))
            read = (_decision(event) for page in pages for event in page["events"])
            decisions += [line for line in read if line is not None and group_name in (None, line.group)]
            pages_left, end = pages_left - len(pages), begin - 1
            if len(decisions) >= MAX_DECISIONS or not pages_left:
                break
        return sorted(decisions, key=lambda decision: -decision.at)[:MAX_DECISIONS]

    def _controller_log(self) -> str | None:
        """Return the controller's log group, None if it does not exist; looked up once."""
        if self._log_group is None:
            short = f"gpu-spot-{self._stack}-controller"
            ours = re.compile(rf"{re.escape(short)}(-[0-9a-f]{{7}})?")  # with Pulumi's suffix
            pages = self._clients("logs").get_paginator("describe_log_groups")
            pages_of_groups = pages.paginate(logGroupNamePrefix=short)
            listed = (group["logGroupName"] for page in pages_of_groups for group in page["logGroups"])
            self._log_group = next(filter(ours.fullmatch, listed), None)
        return self._log_group


def _with_warning(groups: Sequence[GroupSnapshot], warning: str) -> list[GroupSnapshot]:
    return [replace(group, warnings=tuple(dict.fromkeys([*group.warnings, warning]))) for group in groups]


def _decision(event: Mapping[str, Any]) -> DecisionLine | None:
    """Return the decision of a log event, None if the event is not a decision with actions."""
    try:
        line = json.loads(event["message"])
    except ValueError:
        return None
    if not isinstance(line, dict) or line.get("message") != "decision" or not line.get("actions"):
        return None
    actions = tuple(describe_action(action) for action in line["actions"])
    return DecisionLine(event["timestamp"] / 1000, line["group"], actions, line["reason"])


def _workers(
    registered_by_origin: Mapping[str, RegisteredWorkers], live: Collection[str], now: float
) -> Iterator[WorkerCount]:
    """Yield the worker counts of a group.

    Items of terminated instances remain in the registry for an hour and are skipped.
    """
    counts: Counter[tuple[str, str, WorkerPhase]] = Counter()
    for origin, registered in registered_by_origin.items():
        for instance, workers in registered.workers.items():
            if origin == names.ORIGIN_AWS and instance not in live:
                continue
            for worker in workers:
                version = worker.report.version if worker.report else ""
                counts[(origin, version, _phase(worker, now))] += 1
    for (origin, version, phase), count in sorted(counts.items()):
        yield WorkerCount(origin, version, phase, count)


def _other_agents(registered_by_origin: Mapping[str, RegisteredWorkers], now: float) -> Iterator[str]:
    """Yield a sentence for each version of running agents that is not this one's."""
    listed = (workers for read in registered_by_origin.values() for workers in read.workers.values())
    counts = Counter(w.agent_version for workers in listed for w in workers if w.is_fresh(now))
    for agent, count in sorted(counts.items()):
        if version.is_version(agent) and agent != version.VERSION:
            yield (
                f"{counted(count, 'worker')} with agent {agent}, not {version.VERSION} as here: "
                "replace their hosts"
            )


def _tenant_waits(
    registered_by_origin: Mapping[str, RegisteredWorkers], now: float
) -> tuple[TenantWait, ...] | None:
    """Return the waits in the newest current heartbeat of a shared host, None if there is none."""
    aws = registered_by_origin.get(names.ORIGIN_AWS)
    workers = [worker for entries in aws.workers.values() for worker in entries] if aws else []
    current = [worker for worker in workers if worker.is_fresh(now) and worker.tenant_waits is not None]
    return max(current, key=lambda worker: worker.heartbeat).tenant_waits if current else None


def _phase(worker: Worker, now: float) -> WorkerPhase:
    if not worker.is_fresh(now):
        return "silent"
    return "draining" if worker.deadline is not None else worker.state
