"""Read the groups of a stack from Parameter Store: what the program declared and what people set by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.group import config as group_config
from contracts.group import control, rolling
from contracts.group import replacement_requests as wishes
from contracts.group.config import GroupConfig, GroupKind
from contracts.group.replacement_requests import Wish
from contracts.group.rolling import Rolling
from contracts.stored import ContractError
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies import build
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.model import Allowance, Group, Side

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class ParameterError(ValueError):
    """A group's parameters cannot be used; the message names the parameter and what is allowed."""


AUTO_SCALING: Final = "auto-scaling"
SPOT_FLEET: Final = "spot-fleet"
_MAX_QUOTED: Final = 80
"""So many characters of a text that cannot be used are quoted; a parameter may hold thousands."""
_PRIMARY_KINDS: Final[dict[GroupKind, str]] = {"mixed-asg": AUTO_SCALING, "spot-fleet": SPOT_FLEET}


@dataclass(frozen=True, slots=True)
class SideHandle:
    """How AWS knows one side: the service (``kind``) and the name or id there."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """One capacity group: what decisions depend on, how AWS knows it, and its configuration as it was read.

    ``sides`` has no fallback where none stands behind the primary. ``wishes`` and ``rolling`` are the health
    checker's as it wrote them, ``troubles`` what in the parameters makes no sense and does not keep the group
    from being looked after.
    """

    group: Group
    policy: Policy
    sides: Mapping[Side, SideHandle]
    config: GroupConfig
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
        choice = config.policy
        policy = ByDeadline() if config.deadline else build(choice.name, choice.knobs)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"parameter {name}/config: {error}") from None
    prepared = {group: one.get(names.PARAMETER_PREPARED, "") for group, one in (stack or {}).items()}
    target = 0 if waits(name, config, prepared) else _target(name, leaves, config)
    wished, troubles = _wishes(name, leaves)
    rolls, more = _rolling(name, leaves)
    return GroupSettings(
        group=_group(name, leaves, config, target),
        policy=policy,
        sides=_sides(config),
        config=config,
        wishes=wished,
        rolling=rolls,
        troubles=(*troubles, *more),
    )


def _group(name: str, leaves: Mapping[str, str], config: GroupConfig, target: int) -> Group:
    """Return what decisions depend on: the settings that both call by the same name, and what follows."""
    same = {f.name for f in dataclasses.fields(Group)} & {f.name for f in dataclasses.fields(GroupConfig)}
    derived = {
        "fallback": config.fallback is not None,
        # What has ended, or is scaled in, holds no more than it is to have.
        "reserved": min(config.reserved, target),
        "deadline": config.deadline or None,
        "budget": budget(name, leaves, config),
    }
    settings = {each: getattr(config, each) for each in same} | derived
    return Group(name=name, target=target, control=_control(name, leaves), **settings)


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
        told = text[:_MAX_QUOTED]
        raise ParameterError(
            f"parameter {name}/target is {told!r}, a whole number from 0 to {maximum} is needed"
        )
    return int(text)


def _wishes(name: str, leaves: Mapping[str, str]) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """Return the wishes, or that they cannot be read: capacity does not hang on them."""
    try:
        return wishes.parse(leaves.get(names.PARAMETER_WISHES, "{}")), ()
    except ValueError as error:
        told = str(error)[:_MAX_QUOTED]
        return (), (f"parameter {name}/{names.PARAMETER_WISHES}: {told}",)


def _rolling(name: str, leaves: Mapping[str, str]) -> tuple[Rolling | None, tuple[str, ...]]:
    """Return the roll-out, or that it cannot be read."""
    try:
        return rolling.parse(leaves.get(names.PARAMETER_ROLLING, rolling.NONE)), ()
    except ValueError as error:
        told = str(error)[:_MAX_QUOTED]
        return None, (f"parameter {name}/{names.PARAMETER_ROLLING}: {told}",)


def _control(name: str, leaves: Mapping[str, str]) -> control.Control:
    try:
        return control.parse(leaves.get(names.PARAMETER_CONTROL, "{}"))
    except ContractError as error:
        raise ParameterError(f"parameter {name}/control: {error}") from None


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
