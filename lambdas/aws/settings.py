"""Read the groups of a stack from Parameter Store: what the program declared and what people set by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.group import config as group_config
from contracts.group import replacement_requests as wishes
from contracts.group import rolling
from contracts.group.config import GroupConfig, GroupKind
from contracts.group.replacement_requests import Wish
from contracts.group.rolling import Rolling
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies import build
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.model import Allowance, Control, Group, Mode, Side

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class ParameterError(ValueError):
    """A group's parameters cannot be used; the message names the parameter and what is allowed."""


AUTO_SCALING: Final = "auto-scaling"
SPOT_FLEET: Final = "spot-fleet"
_CONTROL_KEYS: Final = ("mode", "onDemand", "budget")
_PRIMARY_KINDS: Final[dict[GroupKind, str]] = {"mixed-asg": AUTO_SCALING, "spot-fleet": SPOT_FLEET}


@dataclass(frozen=True, slots=True)
class SideHandle:
    """How AWS knows one side: the service (``kind``) and the name or id there."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """One capacity group: what decisions depend on, and how AWS knows it.

    ``sides`` has no fallback where none stands behind the primary; ``slots`` are the worker slots that an
    instance of a type must show to be ready, 1 where the type is not named; ``zones``, ``on_demand_prices``,
    ``block`` and ``on_premises`` as in ``GroupConfig``. ``wishes`` and ``rolling`` are the health checker's
    as it wrote them, ``troubles`` what in the parameters makes no sense and does not keep the group from
    being looked after.
    """

    group: Group
    policy: Policy
    sides: Mapping[Side, SideHandle]
    slots: Mapping[str, int]
    zones: tuple[str, ...]
    on_demand_prices: Mapping[str, float]
    block: str
    on_premises: int = 0
    wishes: tuple[Wish, ...] = ()
    rolling: Rolling | None = None
    troubles: tuple[str, ...] = ()


def read(ssm: SSMClient, root: str) -> tuple[dict[str, GroupSettings], dict[str, ParameterError]]:
    """Return the groups below ``root`` by name, and the errors of those whose parameters cannot be used.

    One broken group does not keep the others from being looked after.
    """
    raw = leaves_of(ssm, root)
    groups: dict[str, GroupSettings] = {}
    errors: dict[str, ParameterError] = {}
    for name, leaves in sorted(raw.items()):
        try:
            groups[name] = parse(name, leaves, raw)
        except ParameterError as error:
            errors[name] = error
    return groups, errors


def leaves_of(ssm: SSMClient, root: str) -> dict[str, dict[str, str]]:
    """Return the parameters below ``root``: by group, then by what follows the group's name."""
    raw: dict[str, dict[str, str]] = {}
    for page in ssm.get_paginator("get_parameters_by_path").paginate(Path=root, Recursive=True):
        for parameter in page["Parameters"]:
            group, _, leaf = parameter["Name"].removeprefix(f"{root}/").partition("/")
            raw.setdefault(group, {})[leaf] = parameter["Value"]
    return raw


def parse(
    name: str, leaves: Mapping[str, str], stack: Mapping[str, Mapping[str, str]] | None = None
) -> GroupSettings:
    """Return the settings in a group's parameters (leaf name → text); raise ``ParameterError``.

    ``stack`` are the parameters of all groups, by group: one may wait for what another prepares.
    """
    text = _leaf(name, names.PARAMETER_CONFIG, leaves)
    try:
        config = group_config.parse(text)
        policy = ByDeadline() if config.deadline else build(config.policy, config.knobs)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"parameter {name}/config: {error}") from None
    prepared = {group: one.get(names.PARAMETER_PREPARED, "") for group, one in (stack or {}).items()}
    target = 0 if waits(name, config, prepared) else _target(name, leaves, config)
    group = Group(
        name=name,
        target=target,
        maximum=config.maximum,
        base=config.base,
        spot_percentage=config.spot_percentage,
        drain_seconds=config.drain_seconds,
        fallback=config.fallback is not None,
        # What has ended, or is scaled in, holds no more than it is to have.
        reserved=min(config.reserved, target),
        break_before_make=config.break_before_make,
        by_zone=config.by_zone,
        control=_control(name, leaves),
        deadline=config.deadline or None,
        run=config.run,
        budget=budget(name, leaves, config),
    )
    wished, troubles = _wishes(name, leaves)
    rolls, more = _rolling(name, leaves)
    return GroupSettings(
        group=group,
        policy=policy,
        sides=_sides(config),
        slots=config.slots,
        zones=config.zones,
        on_demand_prices=config.on_demand_prices,
        block=config.block,
        on_premises=config.on_premises,
        wishes=wished,
        rolling=rolls,
        troubles=(*troubles, *more),
    )


def _sides(config: GroupConfig) -> dict[Side, SideHandle]:
    sides = {Side.PRIMARY: SideHandle(_PRIMARY_KINDS[config.kind], config.primary)}
    if config.fallback is not None:
        sides[Side.FALLBACK] = SideHandle(AUTO_SCALING, config.fallback)
    return sides


def waits(name: str, config: GroupConfig, prepared: Mapping[str, str]) -> bool:
    """Tell whether a group has nothing to do: its dataset is not prepared yet, or was by itself."""
    if not config.dataset:
        return False
    is_there = prepared.get(config.prepared_by, "") == config.dataset
    return is_there == (config.prepared_by == name)


def _target(name: str, leaves: Mapping[str, str], config: GroupConfig) -> int:
    """Return the target, 0 for a run that has ended; refuse what is no number or lies above the maximum."""
    if config.run and leaves.get(names.PARAMETER_FINISHED) == config.run:
        return 0  # the end of another run says nothing of this one
    text, maximum = leaves.get(names.PARAMETER_TARGET, ""), config.maximum
    # Only so many digits as the maximum has: Python refuses to read numbers of thousands.
    if not text.isdecimal() or len(text.lstrip("0")) > len(str(maximum)) or int(text) > maximum:
        told = text[: group_config.MOST_TOLD]
        raise ParameterError(
            f"parameter {name}/target is {told!r}, a whole number from 0 to {maximum} is needed"
        )
    return int(text)


def _wishes(name: str, leaves: Mapping[str, str]) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """Return the wishes, or that they cannot be read: capacity does not hang on them."""
    try:
        return wishes.parse(leaves.get(names.PARAMETER_WISHES, "{}")), ()
    except ValueError as error:
        told = str(error)[: group_config.MOST_TOLD]
        return (), (f"parameter {name}/{names.PARAMETER_WISHES}: {told}",)


def _rolling(name: str, leaves: Mapping[str, str]) -> tuple[Rolling | None, tuple[str, ...]]:
    """Return the roll-out, or that it cannot be read."""
    try:
        return rolling.parse(leaves.get(names.PARAMETER_ROLLING, rolling.NONE)), ()
    except ValueError as error:
        told = str(error)[: group_config.MOST_TOLD]
        return None, (f"parameter {name}/{names.PARAMETER_ROLLING}: {told}",)


def _control(name: str, leaves: Mapping[str, str]) -> Control:
    if names.PARAMETER_CONTROL not in leaves:
        return Control()
    try:
        raw = group_config.json_object(leaves[names.PARAMETER_CONTROL])
    except ValueError as error:
        raise ParameterError(f"parameter {name}/control: {error}") from None
    unknown = sorted(raw.keys() - _CONTROL_KEYS)
    if unknown:
        allowed = ", ".join(_CONTROL_KEYS)
        raise ParameterError(f"parameter {name}/control: key {unknown[0]!r} is unknown, allowed: {allowed}")
    mode, on_demand = raw.get("mode", Mode.AUTOMATIC), raw.get("onDemand")
    if mode not in list(Mode):
        raise ParameterError(f"parameter {name}/control: mode is {mode!r}, allowed: {', '.join(Mode)}")
    if mode == Mode.MANUAL and (type(on_demand) is not int or on_demand < 0):
        raise ParameterError(
            f"parameter {name}/control: onDemand is {on_demand!r}, a whole number ≥ 0 is needed"
        )
    dollars = raw.get("budget")
    if dollars is not None and not (type(dollars) in (int, float) and 0 < dollars < math.inf):
        raise ParameterError(
            f"parameter {name}/control: budget is {dollars!r}, US dollars above 0 are needed"
        )
    return Control(Mode(mode), on_demand, dollars)


def budget(name: str, leaves: Mapping[str, str], config: GroupConfig) -> Allowance | None:
    """Return what a job's run may cost: what people set by hand comes before the stack file."""
    if not config.budget:
        return None
    by_hand = _control(name, leaves).budget
    return Allowance(by_hand or config.budget, config.own_prices, config.on_demand_prices)


def _leaf(name: str, leaf: str, leaves: Mapping[str, str]) -> str:
    if leaf not in leaves:
        raise ParameterError(f"parameter {name}/{leaf} is missing")
    return leaves[leaf]
