"""An item of the worker registry: workers write one for each slot of their instance, the controller reads it.

Items are as DynamoDB's API has them (``{"S": …}``, ``{"N": …}``); times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from lambdas.core import names

WorkerState: TypeAlias = Literal["waiting", "ready", "draining"]
"""``waiting``: it cannot work yet, another instance has its job, or the job's volume is on its way."""

_STATES: Final[tuple[WorkerState, ...]] = get_args(WorkerState)

EXPIRES_AFTER_SECONDS: Final = 3600
"""From the last heartbeat on: long enough for the controller to see that they stopped."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its first heartbeat (``since``), its last, and its instance's deadline if known."""

    group: str
    instance: str
    slot: int
    since: float
    heartbeat: float
    state: WorkerState
    deadline: float | None = None


def key(group: str, instance: str, slot: int) -> dict[str, Any]:
    """Return the key of a worker's item."""
    return {names.REGISTRY_KEY: {"S": group}, names.REGISTRY_SORT_KEY: {"S": f"{instance}/{slot}"}}


def dump(worker: Worker) -> dict[str, Any]:
    """Return a worker's whole item."""
    item = {
        **key(worker.group, worker.instance, worker.slot),
        "instance": {"S": worker.instance},
        "since": _number(worker.since),
        "heartbeat": _number(worker.heartbeat),
        "state": {"S": worker.state},
        names.REGISTRY_TTL: _expiry(worker.heartbeat),
    }
    return item if worker.deadline is None else {**item, "deadline": _number(worker.deadline)}


def parse(item: Mapping[str, Any]) -> Worker:
    """Return the worker of an item; one that says nothing of its state is ready.

    Raise ``ValueError`` for an item that no worker of ours writes.
    """
    try:
        instance, _, slot = _place(item)
        worker = Worker(
            group=item[names.REGISTRY_KEY]["S"],
            instance=instance,
            slot=int(slot),
            since=float(item["since"]["N"]),
            heartbeat=float(item["heartbeat"]["N"]),
            state=item["state"]["S"] if "state" in item else "ready",
            deadline=float(item["deadline"]["N"]) if "deadline" in item else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed item of the worker registry: {error!r}") from None
    if worker.state not in _STATES:
        raise ValueError(f"worker state is {worker.state!r}, allowed: {', '.join(_STATES)}")
    return worker


def owner(item: Mapping[str, Any]) -> str:
    """Return the instance that an item of the table is about: its key says so, whatever else it says.

    DynamoDB takes no item without its whole key (API reference, ``PutItem``).
    """
    return _place(item)[0]


def _place(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return an item's instance, a slash, and the worker's slot there."""
    place: tuple[str, str, str] = item[names.REGISTRY_SORT_KEY]["S"].rpartition("/")
    return place


def heartbeat(instance: str, now: float, state: WorkerState, deadline: float | None) -> dict[str, Any]:
    """Return the arguments of an ``UpdateItem`` that records a heartbeat and keeps the first one's time."""
    update = (
        "SET instance = :instance, since = if_not_exists(since, :now), heartbeat = :now, "
        "#state = :state, #expires = :expires"
    )
    values: dict[str, Any] = {
        ":instance": {"S": instance},
        ":now": _number(now),
        ":state": {"S": state},
        ":expires": _expiry(now),
    }
    if deadline is None:
        update += " REMOVE deadline"
    else:
        update += ", deadline = :deadline"
        values[":deadline"] = _number(deadline)
    return {
        "UpdateExpression": update,
        "ExpressionAttributeNames": {"#state": "state", "#expires": names.REGISTRY_TTL},
        "ExpressionAttributeValues": values,
    }


def _expiry(heard: float) -> dict[str, str]:
    return {"N": str(int(heard) + EXPIRES_AFTER_SECONDS)}


def _number(value: float) -> dict[str, str]:
    return {"N": str(int(value)) if float(value).is_integer() else repr(float(value))}
