"""A group's ``config`` parameter: the program writes it, the controller and the rehearsal read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from contracts import codec
from contracts.limits import Above, AtLeast, WholeNumber
from contracts.stored import FieldMark, Stored, stored

GroupKind: TypeAlias = Literal["mixed-asg", "spot-fleet"]
"""What the primary side is."""

Price: TypeAlias = Annotated[float, Above(0)]
"""US dollars an hour."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The rule that says how much on-demand is wanted, and its numbers, as in `contracts.group.policies`."""

    name: str
    knobs: Mapping[str, Any] = field(default_factory=dict)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What the controller must know of a group, beside its target and what people set by hand.

    The one place for its settings: what the program fills in by name, and the controller reads. Its
    decisions depend on those that ``lambdas.core.model.Group`` has by the same name, which says what they
    mean.

    ``primary`` is an Auto Scaling group's name or a fleet's id, ``fallback`` an Auto Scaling group's name,
    ``None`` where none stands behind the primary. ``slots`` are worker slots by instance type.
    ``run`` is the revision that a job is to run, empty for a service: once the group's parameter ``finished``
    names it, the target counts as 0. ``zones`` are where it buys; ``on_demand_prices`` what on-demand in the
    place of an instance costs (US dollars an hour) by its type, without the types of no known price.
    ``block`` is the Capacity Block that the fallback launches into, and into nothing else; empty where it has
    none. ``dataset`` (``<name>@<version>``) is what the group ``prepared_by`` makes before any GPU is paid:
    while that group's parameter ``prepared`` does not name it, the target counts as 0; of that group itself,
    whose own name stands there, once it does. Both are empty where nothing is prepared. ``on_premises`` is
    how many ready workers on premises stand in for one slot; 0: none are counted.
    ``by_zone`` says that the fallback takes orders for one zone, that of a job's volume. ``deadline`` (epoch
    seconds) is when a job must be done, 0 without a date. ``budget`` (US dollars) is what a job's run may
    cost, 0 without a bound; ``own_prices`` are then what an instance of a type itself costs on-demand.
    """

    kind: GroupKind
    primary: str
    fallback: str | None = None
    base: WholeNumber
    spot_percentage: WholeNumber
    maximum: Annotated[WholeNumber, Stored("max")]
    slots: Mapping[str, WholeNumber]
    drain_seconds: Annotated[WholeNumber, FieldMark.REQUIRED] = 0
    break_before_make: bool = False
    """A stack that was declared before jobs were handed over this way does not say so."""
    policy: PolicyChoice
    run: str = ""
    reserved: WholeNumber = 0
    block: str = ""
    zones: tuple[str, ...] = ()
    on_demand_prices: Mapping[str, Price] = field(default_factory=dict)
    dataset: str = ""
    prepared_by: str = ""
    by_zone: bool = False
    deadline: Annotated[float, AtLeast(0)] = 0.0
    on_premises: WholeNumber = 0
    budget: Annotated[float, AtLeast(0)] = 0.0
    own_prices: Mapping[str, Price] = field(default_factory=dict)


def dumps(config: GroupConfig) -> str:
    """Return the parameter's text."""
    return json.dumps(codec.dump(config))


def parse(text: str) -> GroupConfig:
    """Return what the parameter's text says; raise `ContractError` that names what is wrong with it."""
    return codec.parse_text(GroupConfig, text)
