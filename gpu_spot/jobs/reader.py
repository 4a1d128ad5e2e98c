"""Observe a stack's jobs through boto3, with a number of calls that does not grow with a job's life."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from contracts import codec, names
from contracts.agent.names import JOB_KEY, TAG_JOB
from contracts.group import config as group_config
from contracts.group.config import GroupConfig
from contracts.jobs import attempt as attempts
from contracts.jobs import item as job_item
from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from contracts.registry.item import Worker
from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.observed import JobHost, JobObserved, experiment_of
from gpu_spot.jobs.status import standing
from gpu_spot.jobs.timeline import priced_types, tell
from infra.catalogue import on_demand_prices
from lambdas.aws import settings
from lambdas.aws.budget import UNLIMITED
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import ParameterError
from lambdas.core.model import Allowance

Leaves: TypeAlias = Mapping[str, Mapping[str, str]]
"""A stack's parameters: by group, then by name."""

_BATCH: Final = 100
"""The most items of one BatchGetItem (its API reference)."""
_MOST_TRIES: Final = 5
_PRICE_PAGES: Final = 10
_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


class JobError(ValueError):
    """A job cannot be looked at or steered; one line that says why and what is there."""


@dataclass(frozen=True, slots=True)
class JobTables:
    """The physical names of a stack's tables."""

    jobs: str
    registry: str
    memory: str


def find_tables(dynamodb: Any, stack: str) -> JobTables:
    """Return the tables of a deployed stack: theirs are its names with what Pulumi appends.

    Calls: one for each 100 tables of the region. Raises ``JobError`` where they are not there.
    """
    pages = dynamodb.get_paginator("list_tables").paginate()
    listed: list[str] = [name for page in pages for name in page["TableNames"]]

    def one(short: str) -> str:
        pattern = re.compile(rf"gpu-spot-{re.escape(stack)}-{short}(-[0-9a-f]{{7}})?")
        found = [name for name in listed if pattern.fullmatch(name)]
        if len(found) != 1:
            told = ", ".join(found) or "none"
            raise JobError(
                f"stack {stack!r}: one table gpu-spot-{stack}-{short}-… is needed, there is {told}"
            )
        return found[0]

    return JobTables(one("jobs"), one("registry"), one("memory"))


class JobReader:
    """Sees the jobs of one deployed stack.

    Args:
        clients: a boto3 client by the name of its service.
        stack: the stack's name.
        region: where it is, for the prices.
        now: tells the time (epoch seconds); None: AWS's own, by the Date of its answers, since heartbeats of
            a minute ago are told from old ones, and a clock here may be wrong.
    """

    def __init__(
        self, clients: Callable[[str], Any], stack: str, region: str, now: Callable[[], float] | None = None
    ) -> None:
        self._clients = clients
        self._stack = stack
        self._region = region
        self._now = now
        self._told: float | None = None
        self._known: JobTables | None = None
        self._ssm = clients("ssm")
        self._ssm.meta.events.register("after-call.ssm.GetParametersByPath", self._hear)

    @property
    def tables(self) -> JobTables:
        """The stack's tables; looked for once."""
        if self._known is None:
            self._known = find_tables(self._clients("dynamodb"), self._stack)
        return self._known

    def all(self) -> list[JobObserved]:
        """Return every job of the stack, by name, without its stints; experiments follow their group.

        Calls: one for each ten parameters, one for each hundred jobs or experiments, one for each thousand
        instances, one for each job's workers, and one for each budget.
        """
        leaves = self._leaves()
        configs = _jobs(leaves)
        rows = self._rows(configs)
        rows |= self._rows(name for item in rows.values() for name in _experiments(item))
        hosts = self._hosts() if configs else {}
        found: list[JobObserved] = []
        for name in sorted(configs):
            seen = self._observed(name, configs[name], leaves, rows, hosts)
            found += [seen, *(experiment_of(seen, one) for one in seen.experiments)]
        return found

    def one(self, name: str) -> JobObserved:
        """Return a job with its stints; raise ``JobError`` where the stack has none of that name.

        Calls: as ``all`` for a stack with one job, and one or two for the stints.
        """
        leaves = self._leaves()
        configs = _jobs(leaves)
        group = name if name in configs else next((one for one in configs if name.startswith(f"{one}-")), "")
        rows = self._rows([group] if group else [])
        sharing = _experiments(rows.get(group, {}))
        if group != name and name not in sharing:
            has = ", ".join(sorted(configs)) or "no job"
            raise JobError(f"job {name!r}: there is none; the stack has {has}")
        rows |= self._rows(sharing)
        found = tuple(self._stints(name, rows))
        if group == name:
            return self._observed(name, configs[name], leaves, rows, self._hosts(name), found)
        seen = self._observed(group, configs[group], leaves, rows, self._hosts(group))
        return replace(experiment_of(seen, name), stints=found)

    def listed(self) -> list[JobAccount]:
        """Return the accounts of all jobs, without their stories; calls as ``all``."""
        return [JobAccount(seen, standing(seen)) for seen in self.all()]

    def shown(self, name: str) -> JobAccount:
        """Return one job's account with its story; calls and errors as ``one`` and ``prices``."""
        seen = self.one(name)
        return JobAccount(seen, standing(seen), tell(seen, self.prices(seen)))

    def prices(self, seen: JobObserved) -> PriceBook:
        """Return what instances of a job's stints cost; calls: one for each thousand prices, ten at most."""

        def on_demand(instance_type: str) -> float | None:
            return on_demand_prices.price(instance_type, self._region)

        own = seen.own_stints
        types = priced_types(own)
        if not types:
            return PriceBook(on_demand)
        pages = (
            self._clients("ec2")
            .get_paginator("describe_spot_price_history")
            .paginate(
                InstanceTypes=list(types),
                ProductDescriptions=list(_PRODUCTS),
                Filters=[{"Name": "availability-zone", "Values": sorted({one.zone for one in own})}],
                StartTime=datetime.fromtimestamp(min(one.launched for one in own), UTC),
                EndTime=datetime.fromtimestamp(seen.now, UTC),
            )
        )
        spot: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for page in islice(pages, _PRICE_PAGES):
            for told in page["SpotPriceHistory"]:
                place = told["InstanceType"], told["AvailabilityZone"]
                spot.setdefault(place, []).append((told["Timestamp"].timestamp(), float(told["SpotPrice"])))
        return PriceBook(on_demand, spot)

    def _leaves(self) -> Leaves:
        return settings.leaves_of(self._ssm, names.parameter_root(self._stack))

    def _hear(self, parsed: Mapping[str, Any], **_: Any) -> None:
        date = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        try:
            self._told = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            self._told = None

    def time(self) -> float:
        """Return what time it is by ``now``, or by AWS's last answer."""
        if self._now is not None:
            return self._now()
        return datetime.now(UTC).timestamp() if self._told is None else self._told

    def _observed(
        self,
        name: str,
        config: GroupConfig,
        leaves: Leaves,
        rows: Mapping[str, Mapping[str, Any]],
        hosts: Mapping[str, Sequence[JobHost]],
        found: Iterable[JobAttempt] = (),
    ) -> JobObserved:
        own = leaves[name]
        prepared = {group: one.get(names.PARAMETER_PREPARED, "") for group, one in leaves.items()}
        waits = config.prepared_by != name and settings.waits(name, config, prepared)
        registry = RegistryReader(self._clients("dynamodb"), self.tables.registry)
        workers = [one for each in registry.read(name, UNLIMITED).workers.values() for one in each]
        target = own.get(names.PARAMETER_TARGET, "")
        now, budget = self.time(), _budget(name, own, config)
        row = job_item.parse(rows.get(name, {}))
        return JobObserved(
            name=name,
            now=now,
            run=config.run,
            finished=own.get(names.PARAMETER_FINISHED, ""),
            target=int(target) if target.isdecimal() else 0,
            waits_for=config.dataset if waits else "",
            prepared_by=config.prepared_by if waits else "",
            mode=_mode(own.get(names.PARAMETER_CONTROL, "{}")),
            row=row,
            experiments={one: job_item.parse(rows.get(one, {})) for one in row.experiments},
            workers=tuple(workers),
            hosts=tuple(hosts.get(name, ())),
            stints=tuple(found),
            steps=dict(_steps(workers)),
            budget=0.0 if budget is None else budget.dollars,
            spent=0.0 if budget is None else self._spent(name, config.run, now),
        )

    def _spent(self, name: str, run: str, now: float) -> float:
        """Return what the controller has counted for a run; 0 where it has not yet, or counts another."""
        store = MemoryStore(self._clients("dynamodb"), self.tables.memory)
        bill = store.load(name).memory.bill
        return bill.spent(now) if bill.run == run else 0.0

    def _rows(self, wanted: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        found = self._items([{JOB_KEY: {"S": name}} for name in sorted(wanted)])
        return {item[JOB_KEY]["S"]: item for item in found}

    def _stints(self, name: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[JobAttempt]:
        newest = job_item.parse(rows.get(name, {})).token
        wanted = range(max(1, newest - ATTEMPTS_RETAINED + 1), newest + 1)
        for item in self._items([attempts.key(name, token) for token in wanted]):
            try:
                told = attempts.parse(item)
            except ValueError:
                continue  # what is malformed is left out, as the controller leaves out such workers
            if told.token in wanted:
                yield told

    def _items(self, keys: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the job table's items of these keys; DynamoDB may return a part, which is asked for again."""
        dynamodb, table = self._clients("dynamodb"), self.tables.jobs
        for start in range(0, len(keys), _BATCH):
            left = list(keys[start : start + _BATCH])
            for _ in range(_MOST_TRIES):
                answer = dynamodb.batch_get_item(RequestItems={table: {"Keys": left, "ConsistentRead": True}})
                yield from answer["Responses"].get(table, ())
                left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
                if not left:
                    break
            else:
                raise JobError(
                    f"table {table}: {len(left)} items were not read, DynamoDB throttles; again later"
                )

    def _hosts(self, job: str | None = None) -> dict[str, list[JobHost]]:
        filters = [{"Name": f"tag:{names.TAG_STACK}", "Values": [self._stack]}]
        filters.append(
            {"Name": f"tag:{TAG_JOB}", "Values": [job]} if job else {"Name": "tag-key", "Values": [TAG_JOB]}
        )
        pages = self._clients("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        found: dict[str, list[JobHost]] = {}
        for page in pages:
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                    found.setdefault(tags[TAG_JOB], []).append(
                        JobHost(
                            instance=instance["InstanceId"],
                            instance_type=instance["InstanceType"],
                            zone=instance["Placement"]["AvailabilityZone"],
                            market=instance.get("InstanceLifecycle", "on-demand"),
                            launched=instance["LaunchTime"].timestamp(),
                            is_live=instance["State"]["Name"] in ("pending", "running"),
                        )
                    )
        return found


def _jobs(leaves: Leaves) -> dict[str, GroupConfig]:
    """Return the groups that are jobs; one whose parameter cannot be used is the controller's alarm."""
    found = {}
    for name, own in leaves.items():
        try:
            config = group_config.parse(own.get(names.PARAMETER_CONFIG, ""))
        except ValueError:
            continue
        if config.run:
            found[name] = config
    return found


def _mode(text: str) -> str:
    try:
        return str(codec.decode_object(text).get("mode", "automatic"))
    except ValueError:
        return "automatic"


def _budget(name: str, own: Mapping[str, str], config: GroupConfig) -> Allowance | None:
    try:
        return settings.budget(name, own, config)
    except ParameterError:  # the controller's alarm
        return settings.budget(name, {}, config)


def _experiments(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the experiments that share a group, by the group's item."""
    return job_item.parse(item).experiments


def _steps(workers: Iterable[Worker]) -> Iterator[tuple[str, tuple[int, int | None]]]:
    """Yield the steps done and planned of the workers that tell them."""
    for one in workers:
        if one.progress is not None:
            yield one.instance, (one.progress.step, one.progress.steps)
