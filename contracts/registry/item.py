"""An item of the worker registry: workers write one for each slot of their instance, the controller reads it.

Items are as DynamoDB's API has them (``{"S": …}``, ``{"N": …}``); times are epoch seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from contracts import codec, names
from contracts.registry.worker_report import Pulse
from contracts.stored import ContractError, FieldMark, stored

WorkerState: TypeAlias = Literal["waiting", "ready", "draining"]
"""``waiting``: it cannot work yet, another instance has its job, or the job's volume is on its way."""

EXPIRES_AFTER_SECONDS: Final = 3600
"""From the last heartbeat on: long enough for the controller to see that they stopped."""
STALE_SECONDS: Final = 90.0
"""A worker unheard for so long counts as missing: the agent beats every ten seconds."""
SKEW_SECONDS: Final = 30.0
"""By so much the clock of an instance may be ahead; a heartbeat from later is not believed."""
MOST_STEPS: Final = 2**53
"""What a script may count up to: the integers that JSON's numbers hold exactly."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training job is, as its script told at ``at``: ``step`` of ``steps`` are done.

    ``began`` is when the script first told on this instance since it started there. ``rate`` are steps a
    second in the slower half of what was measured, ``best`` those in the faster; 0 while too little was.
    """

    step: int
    steps: int
    at: float
    began: float
    rate: Annotated[float, FieldMark.REQUIRED] = 0.0
    best: Annotated[float, FieldMark.REQUIRED] = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what no script can have done."""
        if not (0 <= self.step <= self.steps and 1 <= self.steps <= MOST_STEPS):
            raise ValueError(f"step {self.step} of {self.steps}, 0 ≤ step ≤ steps ≤ 2^53 is needed")
        if not all(map(math.isfinite, (self.at, self.began, self.rate, self.best))):
            raise ValueError("times and rates of progress must be finite")
        if not 0 <= self.rate <= self.best:
            raise ValueError(f"rates {self.rate:g} and {self.best:g}, 0 ≤ rate ≤ best is needed")


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its first heartbeat (``since``), its last, and its instance's deadline if known.

    ``progress`` is its job's, ``None`` where the script tells none; ``pulse`` what a service's worker tells.
    ``restart`` is when somebody wished that it be started anew (epoch seconds); done once ``since`` is later.
    """

    group: Annotated[str, FieldMark.IN_KEY]
    instance: Annotated[str, FieldMark.IN_KEY]
    slot: Annotated[int, FieldMark.IN_KEY]
    since: float
    heartbeat: float
    state: WorkerState = "ready"
    deadline: float | None = None
    progress: Annotated[Progress | None, FieldMark.OR_DEFAULT] = None
    pulse: Annotated[Pulse | None, FieldMark.OR_DEFAULT] = None
    restart: float | None = None

    def is_fresh(self, now: float) -> bool:
        """Tell whether the last heartbeat is of now, by the worker's own clock."""
        return now - STALE_SECONDS < self.heartbeat <= now + SKEW_SECONDS


def key(group: str, instance: str, slot: int) -> dict[str, Any]:
    """Return the key of a worker's item."""
    return {names.REGISTRY_KEY: {"S": group}, names.REGISTRY_SORT_KEY: {"S": f"{instance}/{slot}"}}


def dump(worker: Worker) -> dict[str, Any]:
    """Return a worker's whole item."""
    return {
        **key(worker.group, worker.instance, worker.slot),
        "instance": codec.attribute(worker.instance),
        names.REGISTRY_TTL: _expiry(worker.heartbeat),
        **codec.dump_item(worker),
    }


def parse(item: Mapping[str, Any]) -> Worker:
    """Return the worker of an item; one that says nothing of its state is ready.

    Progress and a report that make no sense count as not told. Raise `ContractError` for an item that no
    worker of ours writes.
    """
    try:
        group = item[names.REGISTRY_KEY]["S"]
        instance, _, slot = _place(item)
        return codec.parse_item(Worker, item, group=group, instance=instance, slot=int(slot))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ContractError(f"malformed item of the worker registry: {error!s:.200}") from None


def owner(item: Mapping[str, Any]) -> str:
    """Return the instance that an item of the table is about: its key says so, whatever else it says.

    DynamoDB takes no item without its whole key (API reference, ``PutItem``).
    """
    return _place(item)[0]


def _place(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return an item's instance, a slash, and the worker's slot there."""
    place: tuple[str, str, str] = item[names.REGISTRY_SORT_KEY]["S"].rpartition("/")
    return place


def heartbeat(
    instance: str,
    now: float,
    state: WorkerState,
    deadline: float | None,
    progress: Progress | None = None,
    told: Pulse | None = None,
    *,
    is_first: bool = False,
) -> dict[str, Any]:
    """Return the arguments of an ``UpdateItem`` that records a heartbeat and keeps the first one's time.

    ``is_first``: the worker has started since the last one, so that its time counts from now, and a wish that
    it be started anew is done.
    """
    since = ":now" if is_first else "if_not_exists(since, :now)"
    update = (
        f"SET instance = :instance, since = {since}, heartbeat = :now, #state = :state, #expires = :expires"
    )
    values: dict[str, Any] = {
        ":instance": codec.attribute(instance),
        ":now": codec.attribute(now),
        ":state": codec.attribute(state),
        ":expires": _expiry(now),
    }
    missing = ["restart"] if is_first else []
    for name, value in (("deadline", deadline), ("progress", progress), ("pulse", told)):
        if value is None:
            missing.append(name)
        else:
            update += f", {name} = :{name}"
            values[f":{name}"] = codec.attribute(value)
    if missing:
        update += f" REMOVE {', '.join(missing)}"
    return {
        "UpdateExpression": update,
        "ExpressionAttributeNames": {"#state": "state", "#expires": names.REGISTRY_TTL},
        "ExpressionAttributeValues": values,
    }


def wished(item: Mapping[str, Any]) -> bool:
    """Tell whether somebody wishes that a worker be started anew, by the item that an update returned.

    A wish from before the worker's first heartbeat is done; what makes no sense is none.
    """
    try:
        return float(item["restart"]["N"]) > float(item["since"]["N"])
    except (KeyError, TypeError, ValueError):
        return False


def _expiry(heard: float) -> dict[str, Any]:
    return codec.attribute(int(heard) + EXPIRES_AFTER_SECONDS)
