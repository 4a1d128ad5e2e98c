"""Items of the worker registry, one per worker slot of an instance.

Node agents write them, the functions read them. The partition key names the writer, because IAM can limit
a writer to a partition, but not to a sort key (DynamoDB guide, "Using IAM policy conditions for fine-grained
access control": ``dynamodb:LeadingKeys``). Items are DynamoDB attribute values (``{"S": …}``, ``{"N": …}``);
times are epoch seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from contracts import codec, names
from contracts.agent.version import VERSION
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from contracts.stored import ContractError, FieldMark, Stored, stored

WorkerState: TypeAlias = Literal["waiting", "ready", "draining"]
"""``waiting``: the worker cannot work yet; another instance holds the job, or the job's volume is moving."""

EXPIRES_AFTER_SECONDS: Final = 3600
"""Time to live after the last heartbeat: long enough for the controller to observe that it stopped."""
STALE_SECONDS: Final = 90.0
"""Age at which a heartbeat is stale and the worker counts as missing; the agent sends one every ten
seconds."""
MAX_CLOCK_SKEW_SECONDS: Final = 30.0
"""How far an instance's clock may be ahead; a heartbeat from further in the future is ignored."""
MAX_STEPS: Final = 2**53
"""Maximum step count: JSON numbers hold integers exactly up to this value."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a training job, as its script reported at ``reported_at``: ``step`` of ``steps`` are done.

    ``first_reported_at`` is the script's first report since it started on this instance. ``rate`` and
    ``best_rate`` are the steps per second in the slower and in the faster half of the measurements; 0 until
    there are enough.
    """

    step: int
    steps: int
    reported_at: Annotated[float, Stored("at")]
    first_reported_at: Annotated[float, Stored("began")]
    rate: Annotated[float, FieldMark.REQUIRED] = 0.0
    best_rate: Annotated[float, FieldMark.REQUIRED, Stored("best")] = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        if not (0 <= self.step <= self.steps and 1 <= self.steps <= MAX_STEPS):
            raise ValueError(f"step {self.step} of {self.steps} must be within 0 ≤ step ≤ steps ≤ 2^53")
        if not all(map(math.isfinite, (self.reported_at, self.first_reported_at, self.rate, self.best_rate))):
            raise ValueError("times and rates of progress must be finite")
        if not 0 <= self.rate <= self.best_rate:
            raise ValueError(f"rates {self.rate:g} and {self.best_rate:g} must be within 0 ≤ rate ≤ best")


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its first heartbeat (``since``), its last, and its instance's deadline if known.

    ``progress`` is that of its job, ``None`` if the script reports none; ``report`` is the report of a
    service's worker. A restart requested at ``restart_requested_at`` is done once ``since`` is later.
    ``tenant_waits`` are the tenants of a shared host that do not run as listed, ``None`` if not reported.
    ``agent_version`` is that of the node agent, empty if not reported.
    """

    partition: Annotated[str, FieldMark.IN_KEY]
    instance: Annotated[str, FieldMark.IN_KEY]
    slot: Annotated[int, FieldMark.IN_KEY]
    since: float
    heartbeat: float
    state: WorkerState = "ready"
    deadline: float | None = None
    progress: Annotated[Progress | None, FieldMark.OR_DEFAULT] = None
    report: Annotated[WorkerReport | None, FieldMark.OR_DEFAULT, Stored("pulse")] = None
    restart_requested_at: Annotated[float | None, Stored("restart")] = None
    tenant_waits: Annotated[tuple[TenantWait, ...] | None, FieldMark.OR_DEFAULT, Stored("waits")] = None
    agent_version: Annotated[str, FieldMark.OR_DEFAULT] = ""

    def is_fresh(self, now: float) -> bool:
        """Return whether the last heartbeat is neither stale nor in the future."""
        return now - STALE_SECONDS < self.heartbeat <= now + MAX_CLOCK_SKEW_SECONDS


def partition(group: str, writer: str) -> str:
    """Return the partition of the items that ``writer`` may write for a group.

    ``writer`` is what IAM knows about the caller: an instance's ARN, or the name of an on-premises host.
    """
    return f"{group}#{writer}"


def group_of(partition: str) -> str:
    """Return the group in a partition."""
    return partition.partition("#")[0].partition("@")[0]


def instance_arns(aws_partition: str, region: str, account: str) -> str:
    """Return the ARN of an account's instances in a Region, up to the instance id."""
    return f"arn:{aws_partition}:ec2:{region}:{account}:instance/"


def key(partition: str, instance: str, slot: int) -> dict[str, Any]:
    """Return the key of a worker's item."""
    return {names.REGISTRY_KEY: {"S": partition}, names.REGISTRY_SORT_KEY: {"S": f"{instance}/{slot}"}}


def dump(worker: Worker) -> dict[str, Any]:
    """Return a worker's whole item."""
    return {
        **key(worker.partition, worker.instance, worker.slot),
        "instance": codec.attribute(worker.instance),
        names.TTL: _expiry(worker.heartbeat),
        **codec.dump_item(worker),
    }


def parse(item: Mapping[str, Any]) -> Worker:
    """Parse a worker's item; without a state, the worker is ready.

    Invalid progress and an invalid report count as missing. Raise `ContractError` for any other invalid item.
    """
    try:
        partition = item[names.REGISTRY_KEY]["S"]
        instance, _, slot = _split_sort_key(item)
        return codec.parse_item(Worker, item, partition=partition, instance=instance, slot=int(slot))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ContractError(f"malformed item of the worker registry: {error!s:.200}") from None


def instance_of(item: Mapping[str, Any]) -> str:
    """Return the instance id in an item's key, which even a malformed item has.

    Source: DynamoDB API reference, ``PutItem``: the complete primary key is required.
    """
    return _split_sort_key(item)[0]


def _split_sort_key(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the instance id, the slash and the slot in an item's sort key."""
    parts: tuple[str, str, str] = item[names.REGISTRY_SORT_KEY]["S"].rpartition("/")
    return parts


def heartbeat(
    instance: str,
    now: float,
    state: WorkerState,
    deadline: float | None,
    progress: Progress | None = None,
    report: WorkerReport | None = None,
    tenant_waits: tuple[TenantWait, ...] | None = None,
    *,
    is_first: bool = False,
) -> dict[str, Any]:
    """Return the arguments of an ``UpdateItem`` that records a heartbeat and keeps the time of the first.

    ``is_first``: the worker has started since the last heartbeat: ``since`` is reset, and a requested restart
    is done.
    """
    since = ":now" if is_first else "if_not_exists(since, :now)"
    update = (
        f"SET instance = :instance, since = {since}, heartbeat = :now, #state = :state, #expires = :expires, "
        "agentVersion = :agent"
    )
    values: dict[str, Any] = {
        ":instance": codec.attribute(instance),
        ":now": codec.attribute(now),
        ":state": codec.attribute(state),
        ":expires": _expiry(now),
        ":agent": codec.attribute(VERSION),
    }
    missing = ["restart"] if is_first else []
    optional = {"deadline": deadline, "progress": progress, "pulse": report, "waits": tenant_waits}
    for name, value in optional.items():
        if value is None:
            missing.append(name)
        else:
            update += f", {name} = :{name}"
            values[f":{name}"] = codec.attribute(value)
    if missing:
        update += f" REMOVE {', '.join(missing)}"
    return {
        "UpdateExpression": update,
        "ExpressionAttributeNames": {"#state": "state", "#expires": names.TTL},
        "ExpressionAttributeValues": values,
    }


def is_restart_requested(item: Mapping[str, Any]) -> bool:
    """Return whether a worker's restart is requested, from the item that an update returned.

    A request from before the worker's first heartbeat is done; an invalid one is ignored.
    """
    try:
        return float(item["restart"]["N"]) > float(item["since"]["N"])
    except (KeyError, TypeError, ValueError):
        return False


def _expiry(heartbeat_at: float) -> dict[str, Any]:
    return codec.attribute(int(heartbeat_at) + EXPIRES_AFTER_SECONDS)
