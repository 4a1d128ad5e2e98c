"""Reads the groups of a stack from Parameter Store: declared by the program, or set by an operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from contracts import codec, names
from contracts.group import config as group_config
from contracts.group import control, replacement_requests, rollout_request
from contracts.group.config import GroupConfig, GroupKind
from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.rollout_request import NO_REQUEST, RolloutRequest
from contracts.jobs import run as job_run
from contracts.jobs.run import RunRequest, RunState
from contracts.stored import ContractError
from lambdas.aws.budget import UNLIMITED, Budget
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies import build
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.model import Group, GroupRole, RunBudget

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

_Requests = TypeVar("_Requests")


class ParameterError(ValueError):
    """A group's parameters are invalid; the message names the parameter and what is allowed."""


AUTO_SCALING: Final = "auto-scaling"
SPOT_FLEET: Final = "spot-fleet"
_MAX_QUOTED: Final = 80
"""Maximum characters of an invalid text in a message; a parameter may hold thousands."""
_MAX_TARGET_DIGITS: Final = 5
"""No group of AWS has 100,000 instances."""
_PRIMARY_KINDS: Final[dict[GroupKind, str]] = {"mixed-asg": AUTO_SCALING, "spot-fleet": SPOT_FLEET}


@dataclass(frozen=True, slots=True)
class CapacityResource:
    """An Auto Scaling group by name, or a Spot Fleet by request id, according to ``kind``."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a capacity group and its resources in AWS.

    ``resources`` has no fallback if the group has none. ``replacement_requests`` and ``rollout_request`` are
    written by the health checker. ``has_ended``: the job's run has finished, or none was requested yet.
    ``run``: the newest run of a job with a schedule, and ``requests``, the newest ones for a run by
    parameter, which run ``revision``.
    ``read_errors``: invalid parameters without which the group can be managed.
    """

    group: Group
    policy: Policy
    resources: Mapping[GroupRole, CapacityResource]
    replacement_requests: tuple[ReplacementRequest, ...] = ()
    rollout_request: RolloutRequest = NO_REQUEST
    has_ended: bool = False
    run: RunState | None = None
    requests: Mapping[str, RunRequest] = field(default_factory=dict)
    revision: str = ""
    read_errors: tuple[str, ...] = ()


def read(
    ssm: SSMClient, root: str, budget: Budget = UNLIMITED
) -> tuple[dict[str, GroupSettings], dict[str, ParameterError]]:
    """Return the groups below ``root`` by name, and the errors of groups with invalid parameters."""
    by_group = read_group_parameters(ssm, root, budget)
    groups: dict[str, GroupSettings] = {}
    errors: dict[str, ParameterError] = {}
    for name, parameters in sorted(by_group.items()):
        try:
            groups[name] = parse(name, parameters, by_group)
        except ParameterError as error:
            errors[name] = error
    return groups, errors


def read_group_parameters(ssm: SSMClient, root: str, budget: Budget = UNLIMITED) -> dict[str, dict[str, str]]:
    """Return the parameters below ``root`` by group and by the rest of their path (the leaf name)."""
    by_group: dict[str, dict[str, str]] = {}
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=root, Recursive=True)
    for page in budget.pages("parameters", pages, math.inf):
        for parameter in page["Parameters"]:
            group, _, leaf = parameter["Name"].removeprefix(f"{root}/").partition("/")
            by_group.setdefault(group, {})[leaf] = parameter["Value"]
    return by_group


def parse(
    name: str, parameters: Mapping[str, str], stack: Mapping[str, Mapping[str, str]] | None = None
) -> GroupSettings:
    """Return the settings in a group's parameters (leaf name → text); raise ``ParameterError``.

    ``stack``: the parameters of all groups, because a group may wait for a dataset that another prepares.
    """
    text = _leaf(name, names.PARAMETER_CONFIG, parameters)
    try:
        declared = group_config.parse(text)
        config, run = with_run(name, parameters, declared)
        choice = config.policy
        policy = ByDeadline() if config.deadline else build(choice.name, choice.parameters)
    except ParameterError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(f"parameter {name}/config: {error}") from None
    prepared = {group: texts.get(names.PARAMETER_PREPARED, "") for group, texts in (stack or {}).items()}
    has_ended = is_ended(parameters, config, run)
    waits = has_ended or is_waiting_for_dataset(name, config, prepared)
    target = 0 if waits else _target(name, parameters, config)
    above = (
        (f"parameter {name}/target is {target}, capacity.max is {config.maximum}: the maximum is the target",)
        if target > config.maximum
        else ()
    )
    replacements, errors = _requests(
        name, names.PARAMETER_REPLACEMENT_REQUESTS, parameters, replacement_requests.parse
    )
    rollout, more_errors = _requests(name, names.PARAMETER_ROLLOUT_REQUEST, parameters, rollout_request.parse)
    run_requests, request_errors = ({}, ()) if run is None else read_requests(name, parameters)
    return GroupSettings(
        group=Group.of(
            name,
            config,
            min(target, config.maximum),
            _control(name, parameters),
            budget(name, parameters, config),
        ),
        policy=policy,
        resources=_resources(config),
        replacement_requests=replacements,
        rollout_request=rollout,
        has_ended=has_ended,
        run=run,
        requests=run_requests,
        revision=declared.run,
        read_errors=(*above, *errors, *more_errors, *request_errors),
    )


def _resources(config: GroupConfig) -> dict[GroupRole, CapacityResource]:
    resources = {GroupRole.PRIMARY: CapacityResource(_PRIMARY_KINDS[config.kind], config.primary)}
    if config.fallback is not None:
        resources[GroupRole.FALLBACK] = CapacityResource(AUTO_SCALING, config.fallback)
    return resources


def is_waiting_for_dataset(name: str, config: GroupConfig, prepared: Mapping[str, str]) -> bool:
    """Return whether a group must have no instances because of its dataset.

    True while the dataset is not prepared; for the group that prepares it, once it is prepared.
    """
    if not config.dataset:
        return False
    is_prepared = prepared.get(config.prepared_by, "") == config.dataset
    return is_prepared == (config.prepared_by == name)


def with_run(
    name: str, parameters: Mapping[str, str], config: GroupConfig
) -> tuple[GroupConfig, RunState | None]:
    """Return the configuration with the newest run of a job with a schedule, and that run.

    Another job's is unchanged, with None.

    Raises:
        ParameterError: the parameter ``run`` is invalid.
    """
    if config.runs is None:
        return config, None
    text = parameters.get(names.PARAMETER_RUN, job_run.INITIAL)
    try:
        run = codec.parse_text(RunState, text)
    except ContractError as error:
        raise ParameterError(f"parameter {name}/{names.PARAMETER_RUN}: {str(error)[:_MAX_QUOTED]}") from None
    after = config.runs.deadline_after
    deadline = run.began + after if run.request and after else 0.0
    return replace(config, run=run.id or config.run, deadline=deadline), run


def read_requests(name: str, parameters: Mapping[str, str]) -> tuple[dict[str, RunRequest], tuple[str, ...]]:
    """Return the newest requests for a run by parameter, and the errors of invalid ones."""
    requests, errors = {}, []
    for leaf in names.RUN_REQUESTS:
        text = parameters.get(leaf, job_run.INITIAL)
        try:
            if text != job_run.INITIAL:
                requests[leaf] = codec.parse_text(RunRequest, text)
        except ContractError as error:
            errors.append(f"parameter {name}/{leaf}: {str(error)[:_MAX_QUOTED]}; it starts no run")
    return requests, tuple(errors)


def _target(name: str, parameters: Mapping[str, str], config: GroupConfig) -> int:
    """Return the target; raise ``ParameterError`` unless it is a capacity of AWS.

    It may exceed a maximum that was lowered after it was written.
    """
    text = parameters.get(names.PARAMETER_TARGET, "")
    # Compare the digits first: Python refuses to parse numbers with thousands of digits.
    if not text.isdecimal() or len(text.lstrip("0")) > _MAX_TARGET_DIGITS:
        raise ParameterError(
            f"parameter {name}/target must be a whole number from 0 to {config.maximum}, not "
            f"{text[:_MAX_QUOTED]!r}"
        )
    return int(text)


def is_ended(parameters: Mapping[str, str], config: GroupConfig, run: RunState | None) -> bool:
    """Return whether a job's run has finished; also true if its schedule has not started one yet."""
    if run is not None and run.request is None:
        return True
    return bool(config.run) and parameters.get(names.PARAMETER_FINISHED) == config.run


def _requests(
    name: str, leaf: str, parameters: Mapping[str, str], parse: Callable[[str], _Requests]
) -> tuple[_Requests, tuple[str, ...]]:
    """Return the health checker's requests, or none and an error: the group can be managed without them."""
    try:
        return parse(parameters.get(leaf, "{}")), ()
    except ValueError as error:
        return parse("{}"), (f"parameter {name}/{leaf}: {str(error)[:_MAX_QUOTED]}",)


def _control(name: str, parameters: Mapping[str, str]) -> control.Control:
    try:
        return control.parse(parameters.get(names.PARAMETER_CONTROL, "{}"))
    except ContractError as error:
        raise ParameterError(f"parameter {name}/control: {error}") from None


def budget(name: str, parameters: Mapping[str, str], config: GroupConfig) -> RunBudget | None:
    """Return the budget of a job's run; the ``control`` parameter takes precedence over the stack file."""
    if not config.budget:
        return None
    override = _control(name, parameters).budget
    return RunBudget(override or config.budget, config.own_prices, config.on_demand_prices)


def _leaf(name: str, leaf: str, parameters: Mapping[str, str]) -> str:
    if leaf not in parameters:
        raise ParameterError(f"parameter {name}/{leaf} is missing")
    return parameters[leaf]
