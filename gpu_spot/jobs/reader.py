"""Reads a stack's jobs from AWS with a number of calls that does not grow with a job's life."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from contracts import codec, names
from contracts.agent.names import JOB_KEY, TAG_JOB
from contracts.group import config as group_config
from contracts.group.config import GroupConfig
from contracts.jobs import attempt as attempts
from contracts.jobs import item as job_item
from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from contracts.jobs.run import RunState
from contracts.registry.item import Worker, instance_arns
from gpu_spot.jobs.prices import PriceBook
from gpu_spot.jobs.report import JobReport, with_account
from gpu_spot.jobs.snapshot import JobHost, JobSnapshot, experiment_of
from gpu_spot.jobs.status import job_status
from gpu_spot.jobs.timeline import priced_types
from gpu_spot.tables import deployed_tables
from infra.catalogue import on_demand_prices, price_tables
from lambdas.aws import settings
from lambdas.aws.budget import UNLIMITED
from lambdas.aws.items import batch_get
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import ParameterError
from lambdas.core import runs
from lambdas.core.model import RunBudget
from userdata.agent.aws.spot_prices import read_spot_prices

GroupParameters: TypeAlias = Mapping[str, Mapping[str, str]]
"""A stack's SSM parameters: by group, then by name."""


class JobError(ValueError):
    """A job cannot be read or changed; one line with the reason."""


@dataclass(frozen=True, slots=True)
class JobTables:
    """The physical names of a stack's tables."""

    jobs: str
    registry: str
    memory: str


def find_tables(dynamodb: Any, stack: str) -> JobTables:
    """Return the tables of a deployed stack; calls as of ``deployed_tables``. Raises ``JobError`` without."""
    tables = deployed_tables(dynamodb, stack)
    for table, matches in tables.items():
        if len(matches) != 1:
            existing = ", ".join(matches) or "none"
            raise JobError(f"stack {stack!r} must have one table gpu-spot-{stack}-{table}-…, not {existing}")
    return JobTables(**{table: name for table, [name] in tables.items()})


class JobReader:
    """Reads the jobs of one deployed stack.

    Args:
        clients: returns the boto3 client of a service.
        stack: name of the stack.
        region: its region, for prices.
        now: returns the time (epoch seconds). None: the Date header of AWS's last response, because the age
            of heartbeats matters and the local clock may be wrong.
    """

    def __init__(
        self, clients: Callable[[str], Any], stack: str, region: str, now: Callable[[], float] | None = None
    ) -> None:
        self._clients = clients
        self._stack = stack
        self._region = region
        self._now = now
        self._aws_time: float | None = None
        self._tables: JobTables | None = None
        self._registry: RegistryReader | None = None
        self._ssm = clients("ssm")
        self._ssm.meta.events.register("after-call.ssm.GetParametersByPath", self._record_time)

    @property
    def tables(self) -> JobTables:
        """The stack's tables; looked up once."""
        if self._tables is None:
            self._tables = find_tables(self._clients("dynamodb"), self._stack)
        return self._tables

    @property
    def registry(self) -> RegistryReader:
        """A reader of the worker registry; the account is looked up once."""
        if self._registry is None:
            identity = self._clients("sts").get_caller_identity()
            arns = instance_arns(identity["Arn"].split(":")[1], self._region, identity["Account"])
            self._registry = RegistryReader(self._clients("dynamodb"), self.tables.registry, arns)
        return self._registry

    def read_all(self) -> list[JobSnapshot]:
        """Return every job of the stack by name, without attempts; experiments follow their group.

        Calls: one for each ten parameters, one for each hundred jobs or experiments, one for each thousand
        instances, one for each job's workers, and one for each budget.
        """
        leaves = self._read_parameters()
        configs = _jobs(leaves)
        rows = self._rows(configs)
        rows |= self._rows(name for item in rows.values() for name in _parts(item))
        hosts = self._hosts() if configs else {}
        snapshots: list[JobSnapshot] = []
        for name in sorted(configs):
            snapshot = self._snapshot(name, configs[name], leaves, rows, hosts)
            snapshots += [
                snapshot,
                *(experiment_of(snapshot, experiment) for experiment in snapshot.experiments),
            ]
        return snapshots

    def read(self, name: str) -> JobSnapshot:
        """Return a job with its attempts. Raises ``JobError`` if the stack has no such job.

        Calls: as ``find``.
        """
        snapshot = self.find(name)
        if snapshot is None:
            has = ", ".join(sorted(_jobs(self._read_parameters()))) or "none"
            raise JobError(f"job {name!r} does not exist; jobs of the stack: {has}")
        return snapshot

    def find(self, name: str) -> JobSnapshot | None:
        """Return a job with its attempts; None if it is not deployed.

        Calls: as ``read_all`` for a stack with one job, and one or two for the attempts.
        """
        leaves = self._read_parameters()
        configs = _jobs(leaves)
        group = max((job for job in configs if f"{name}-".startswith(f"{job}-")), key=len, default="")
        if not group:
            return None
        rows = self._rows([group])
        sharing = _parts(rows.get(group, {}))
        if group != name and name not in sharing:
            return None
        rows |= self._rows(sharing)
        attempts = tuple(self._attempts(name, rows))
        if group == name:
            return self._snapshot(name, configs[name], leaves, rows, self._hosts(name), attempts)
        snapshot = self._snapshot(group, configs[group], leaves, rows, self._hosts(group))
        return replace(experiment_of(snapshot, name), attempts=attempts)

    def reports(self) -> list[JobReport]:
        """Return the reports of all jobs, without timelines. Calls: as ``read_all``."""
        return [JobReport(snapshot, job_status(snapshot)) for snapshot in self.read_all()]

    def report(self, name: str) -> JobReport:
        """Return a job's report with its timeline. Calls and errors: as ``read`` and ``prices``."""
        snapshot = self.read(name)
        return with_account(snapshot, job_status(snapshot), self.prices(snapshot))

    def prices(self, snapshot: JobSnapshot) -> PriceBook:
        """Return the prices of a job's instances. Calls: one for each thousand prices, at most ten."""

        def on_demand(instance_type: str) -> float | None:
            return on_demand_prices.price(instance_type, self._region)

        def source_of(instance_type: str) -> str:
            listed = price_tables.find(instance_type, self._region)
            return "" if listed is None else f"{listed.source}, {listed.date}"

        attempts = snapshot.run_attempts
        types = priced_types(attempts)
        if not types:
            return PriceBook(on_demand, source_of=source_of)
        zones, begin = (attempt.zone for attempt in attempts), min(attempt.launched for attempt in attempts)
        spot = read_spot_prices(self._clients("ec2"), types, zones, begin, snapshot.now)
        return PriceBook(on_demand, spot, source_of)

    def _read_parameters(self) -> GroupParameters:
        return settings.read_group_parameters(self._ssm, names.parameter_root(self._stack))

    def _record_time(self, parsed: Mapping[str, Any], **_: Any) -> None:
        date = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        try:
            self._aws_time = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            self._aws_time = None

    def time(self) -> float:
        """Return the time from ``now``, or from AWS's last response."""
        if self._now is not None:
            return self._now()
        return datetime.now(UTC).timestamp() if self._aws_time is None else self._aws_time

    def _snapshot(
        self,
        name: str,
        config: GroupConfig,
        leaves: GroupParameters,
        rows: Mapping[str, Mapping[str, Any]],
        hosts: Mapping[str, Sequence[JobHost]],
        attempts: Iterable[JobAttempt] = (),
    ) -> JobSnapshot:
        group_parameters = leaves[name]
        prepared = {group: values.get(names.PARAMETER_PREPARED, "") for group, values in leaves.items()}
        waits = config.prepared_by != name and settings.is_waiting_for_dataset(name, config, prepared)
        own_hosts = hosts.get(name, ())
        registered = self.registry.read(
            name, {host.instance: config.slots.get(host.instance_type, 1) for host in own_hosts}, UNLIMITED
        )
        workers = [worker for workers in registered.workers.values() for worker in workers]
        target = group_parameters.get(names.PARAMETER_TARGET, "")
        now, budget = self.time(), _budget(name, group_parameters, config)
        requests, errors = settings.read_requests(name, group_parameters) if config.runs else ({}, ())
        early = {leaf: error for leaf, at in requests.items() if (error := runs.future_error(at, now))}
        errors = (*errors, *(f"{leaf}: {error}" for leaf, error in early.items()))
        row = job_item.parse(rows.get(name, {}))
        return JobSnapshot(
            name=name,
            now=now,
            run=config.run,
            finished=group_parameters.get(names.PARAMETER_FINISHED, ""),
            target=int(target) if target.isdecimal() else 0,
            waits_for=config.dataset if waits else "",
            prepared_by=config.prepared_by if waits else "",
            mode=_mode(group_parameters.get(names.PARAMETER_CONTROL, "{}")),
            row=row,
            experiments={
                experiment: job_item.parse(rows.get(experiment, {})) for experiment in row.experiments
            },
            nodes={node: job_item.parse(rows.get(node, {})) for node in row.node_names(name)},
            workers=tuple(workers),
            hosts=tuple(own_hosts),
            attempts=tuple(attempts),
            steps=dict(_steps(workers)),
            budget=0.0 if budget is None else budget.dollars,
            spent=0.0 if budget is None else self._spent(name, config.run, now),
            runs=config.runs,
            run_state=_run_state(name, group_parameters, config),
            requests={leaf: request for leaf, request in requests.items() if leaf not in early},
            request_error="; ".join(errors),
        )

    def _spent(self, name: str, run: str, now: float) -> float:
        """Return the cost that the controller counted for a run; 0 if it has not counted this run."""
        store = MemoryStore(self._clients("dynamodb"), self.tables.memory)
        bill = store.load(name).memory.bill
        return bill.spent(now) if bill.run == run else 0.0

    def _rows(self, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        items = self._items([{JOB_KEY: {"S": name}} for name in sorted(names)])
        return {item[JOB_KEY]["S"]: item for item in items}

    def _attempts(self, name: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[JobAttempt]:
        newest = job_item.parse(rows.get(name, {})).token
        tokens = range(max(1, newest - ATTEMPTS_RETAINED + 1), newest + 1)
        for item in self._items([attempts.key(name, token) for token in tokens]):
            try:
                attempt = attempts.parse(item)
            except ValueError:
                continue  # skip malformed items, as the controller skips malformed workers
            if attempt.token in tokens:
                yield attempt

    def _items(self, keys: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the job table's items of these keys."""
        return batch_get(self._clients("dynamodb"), self.tables.jobs, keys, UNLIMITED, consistent=True)

    def _hosts(self, job: str | None = None) -> dict[str, list[JobHost]]:
        filters = [{"Name": f"tag:{names.TAG_STACK}", "Values": [self._stack]}]
        filters.append(
            {"Name": f"tag:{TAG_JOB}", "Values": [job]} if job else {"Name": "tag-key", "Values": [TAG_JOB]}
        )
        pages = self._clients("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        hosts: dict[str, list[JobHost]] = {}
        for page in pages:
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                    hosts.setdefault(tags[TAG_JOB], []).append(
                        JobHost(
                            instance=instance["InstanceId"],
                            instance_type=instance["InstanceType"],
                            zone=instance["Placement"]["AvailabilityZone"],
                            market=instance.get("InstanceLifecycle", "on-demand"),
                            launched=instance["LaunchTime"].timestamp(),
                            is_live=instance["State"]["Name"] in ("pending", "running"),
                        )
                    )
        return hosts


def _jobs(leaves: GroupParameters) -> dict[str, GroupConfig]:
    """Return the groups that are jobs.

    Invalid parameters are skipped; the controller raises an alarm for them.
    """
    configs = {}
    for name, group_parameters in leaves.items():
        try:
            config = group_config.parse(group_parameters.get(names.PARAMETER_CONFIG, ""))
        except ValueError:
            continue
        if config.run:
            with suppress(ParameterError):
                config, _ = settings.with_run(name, group_parameters, config)
            configs[name] = config
    return configs


def _run_state(name: str, parameters: Mapping[str, str], config: GroupConfig) -> RunState | None:
    try:
        return settings.with_run(name, parameters, config)[1]
    except ParameterError:  # the controller raises an alarm for it
        return RunState()


def _mode(text: str) -> str:
    try:
        return str(codec.decode_object(text).get("mode", "automatic"))
    except ValueError:
        return "automatic"


def _budget(name: str, parameters: Mapping[str, str], config: GroupConfig) -> RunBudget | None:
    try:
        return settings.budget(name, parameters, config)
    except ParameterError:  # the controller raises an alarm for it
        return settings.budget(name, {}, config)


def _parts(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the experiments that share a group, or of a job's nodes, from the group's item."""
    row = job_item.parse(item)
    return (*row.experiments, *row.node_names(str(item[JOB_KEY]["S"]) if item else ""))


def _steps(workers: Iterable[Worker]) -> Iterator[tuple[str, tuple[int, int | None]]]:
    """Yield the steps done and planned of the workers that report them."""
    for worker in workers:
        if worker.progress is not None:
            yield worker.instance, (worker.progress.step, worker.progress.steps)
