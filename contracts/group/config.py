"""A group's ``config`` parameter: the program writes it, the controller and the rehearsal read it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

GroupKind: TypeAlias = Literal["mixed-asg", "spot-fleet"]
"""What the primary side is."""

KINDS: Final[tuple[GroupKind, ...]] = get_args(GroupKind)

MOST_TOLD: Final = 80
"""So many characters of a text that cannot be used are told; a parameter may hold thousands."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the controller must know of a group, beside its target and what people set by hand.

    ``primary`` is an Auto Scaling group's name or a fleet's id, ``fallback`` an Auto Scaling group's name,
    ``None`` where none stands behind the primary. ``slots`` are worker slots by instance type, ``policy`` and
    ``knobs`` as in ``lambdas.core.capacity.policies.build``; the others as in ``lambdas.core.model.Group``.
    ``run`` is the revision that a job is to run, empty for a service: once the group's parameter ``finished``
    names it, the target counts as 0. ``zones`` are where it buys; ``on_demand_prices`` what on-demand in the
    place of an instance costs (US dollars an hour) by its type, without the types for which nobody knows.
    ``block`` is the Capacity Block that the fallback launches into, and into nothing else; empty where it has
    none. ``dataset`` (``<name>@<version>``) is what the group ``prepared_by`` makes before any GPU is paid:
    while that group's parameter ``prepared`` does not name it, the target counts as 0; of that group itself,
    whose own name stands there, once it does. Both are empty where nothing is prepared. ``on_premises`` is
    how many ready workers elsewhere stand in for one slot; 0: none are counted.
    ``by_zone`` says that the fallback takes orders for one zone, that of a job's volume. ``deadline`` (epoch
    seconds) is when a job must be done, 0 without a date. ``budget`` (US dollars) is what a job's run may
    cost, 0 without a bound; ``own_prices`` are then what an instance of a type itself costs on-demand.
    """

    kind: GroupKind
    primary: str
    fallback: str | None
    base: int
    spot_percentage: int
    maximum: int
    slots: Mapping[str, int]
    drain_seconds: int
    break_before_make: bool
    policy: str
    knobs: Mapping[str, float] = field(default_factory=dict)
    run: str = ""
    reserved: int = 0
    block: str = ""
    zones: tuple[str, ...] = ()
    on_demand_prices: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    prepared_by: str = ""
    by_zone: bool = False
    deadline: float = 0.0
    on_premises: int = 0
    budget: float = 0.0
    own_prices: Mapping[str, float] = field(default_factory=dict)


def dumps(config: GroupConfig) -> str:
    """Return the parameter's text."""
    return json.dumps(
        {
            "kind": config.kind,
            "primary": config.primary,
            "fallback": config.fallback,
            "base": config.base,
            "spotPercentage": config.spot_percentage,
            "max": config.maximum,
            "slots": dict(config.slots),
            "drainSeconds": config.drain_seconds,
            "breakBeforeMake": config.break_before_make,
            "policy": {"name": config.policy, "knobs": dict(config.knobs)},
            "run": config.run,
            "reserved": config.reserved,
            "block": config.block,
            "zones": list(config.zones),
            "onDemandPrices": dict(config.on_demand_prices),
            "dataset": config.dataset,
            "preparedBy": config.prepared_by,
            "byZone": config.by_zone,
            "deadline": config.deadline,
            "onPremises": config.on_premises,
            "budget": config.budget,
            "ownPrices": dict(config.own_prices),
        }
    )


def parse(text: str) -> GroupConfig:
    """Return what the parameter's text says; raise ``ValueError`` that names what is wrong with it."""
    raw = json_object(text)
    try:
        return _read(raw)
    except KeyError as error:
        raise ValueError(f"no key {error.args[0]!r}") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a parameter's text; raise ``ValueError`` for all else.

    Also for what Python's parser refuses in its own ways: numbers of thousands of digits, deep nesting.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{text[:MOST_TOLD]!r}, a JSON object is needed")
    return raw


def _read(raw: Mapping[str, Any]) -> GroupConfig:
    if raw["kind"] not in KINDS:
        raise ValueError(f"kind is {raw['kind']!r}, allowed: {', '.join(KINDS)}")
    return GroupConfig(
        kind=raw["kind"],
        primary=_text(raw["primary"]),
        fallback=_text(raw["fallback"]) if raw.get("fallback") else None,
        base=_count(raw["base"]),
        spot_percentage=_count(raw["spotPercentage"]),
        maximum=_count(raw["max"]),
        slots={kind: _count(count) for kind, count in raw["slots"].items()},
        drain_seconds=_count(raw["drainSeconds"]),
        # A stack that was declared before jobs were handed over this way does not say so.
        break_before_make=bool(raw.get("breakBeforeMake", False)),
        policy=_text(raw["policy"]["name"]),
        knobs=dict(raw["policy"].get("knobs") or {}),
        run=raw.get("run", ""),
        reserved=_count(raw.get("reserved", 0)),
        block=_text(raw.get("block", "")),
        zones=tuple(_text(zone) for zone in raw.get("zones", ())),
        on_demand_prices={kind: _price(price) for kind, price in raw.get("onDemandPrices", {}).items()},
        dataset=_text(raw.get("dataset", "")),
        prepared_by=_text(raw.get("preparedBy", "")),
        by_zone=bool(raw.get("byZone", False)),
        deadline=_moment(raw.get("deadline", 0.0)),
        on_premises=_count(raw.get("onPremises", 0)),
        budget=_dollars(raw.get("budget", 0.0)),
        own_prices={kind: _price(price) for kind, price in raw.get("ownPrices", {}).items()},
    )


def _count(value: Any) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(f"{count}, a whole number ≥ 0 is needed")
    return count


def _price(value: Any) -> float:
    price = float(value)
    if not 0 < price < math.inf:
        raise ValueError(f"{price}, a price > 0 is needed")
    return price


def _dollars(value: Any) -> float:
    dollars = float(value)
    if not 0 <= dollars < math.inf:
        raise ValueError(f"{dollars}, US dollars ≥ 0 are needed")
    return dollars


def _moment(value: Any) -> float:
    moment = float(value)
    if not 0 <= moment < math.inf:
        raise ValueError(f"{moment}, epoch seconds are needed")
    return moment


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:MOST_TOLD]!r}, a name is needed")
    return value
