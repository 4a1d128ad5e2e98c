"""Capacity groups and worker registry of a deployment, as a rehearsal uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts import names
from contracts.group import config as group_config
from contracts.group.config import GroupConfig
from lambdas.aws.registry import RegistryReader
from lambdas.core.model import GroupRole
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.record import Deployment
from rehearsal.cloud.instances import Instances


@dataclass(frozen=True, slots=True)
class GroupView:
    """A capacity group as it was deployed.

    Attributes:
        name: the group's name.
        primary: name of the Auto Scaling group or id of the Spot Fleet that runs mostly on Spot.
        fallback: name of the On-Demand Auto Scaling group, None if there is none.
        zones: availability zones.
        instance_types: instance types, in order of preference.
        weights: capacity units of an instance, by type; default 1.
        slots: workers of an instance, by type.
        on_demand_prices: On-Demand price that replaces an instance (US dollars an hour), by type.
        drain_seconds: time before a deadline at which workers stop receiving messages.
        prepared_by: the group that prepares its dataset, possibly itself; empty if none does.
    """

    name: str
    primary: str
    fallback: str | None
    zones: tuple[str, ...]
    instance_types: tuple[str, ...]
    weights: Mapping[str, int]
    slots: Mapping[str, int]
    on_demand_prices: Mapping[str, float]
    drain_seconds: float
    prepared_by: str = ""

    @property
    def prepares(self) -> bool:
        """Whether it prepares a dataset for other groups."""
        return self.prepared_by == self.name

    def side(self, side: GroupRole) -> str:
        """Return the group name or fleet id of a group role."""
        name = self.primary if side is GroupRole.PRIMARY else self.fallback
        if name is None:
            raise LocalCloudError(f"group {self.name!r} has no {side}")
        return name

    @property
    def sizes(self) -> tuple[str, ...]:
        """The first type of each weight."""
        first = {self.weights.get(name, 1): name for name in reversed(self.instance_types)}
        return tuple(name for name in self.instance_types if name in first.values())

    @property
    def holders(self) -> tuple[str, ...]:
        """Names of primary and, if there is one, fallback."""
        return (self.primary,) if self.fallback is None else (self.primary, self.fallback)


def read_groups(deployment: Deployment, instances: Instances) -> tuple[GroupView, ...]:
    """Return the deployed capacity groups, by name."""
    root = names.parameter_root(deployment.stack)
    ssm = deployment.clients("ssm")
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=root, Recursive=True)
    views = []
    for parameter in (parameter for page in pages for parameter in page["Parameters"]):
        group, _, leaf = parameter["Name"].removeprefix(f"{root}/").partition("/")
        if leaf == names.PARAMETER_CONFIG:
            views.append(_read_group(group, group_config.parse(parameter["Value"]), instances))
    return tuple(sorted(views, key=lambda view: view.name))


def registry_reader(deployment: Deployment) -> RegistryReader:
    """Return a reader of the worker registry with the settings of the deployed functions."""
    return RegistryReader(
        deployment.clients("dynamodb"),
        _variable(deployment, names.ENV_REGISTRY_TABLE),
        _variable(deployment, names.ENV_INSTANCE_ARNS),
    )


def _variable(deployment: Deployment, name: str) -> str:
    """Return an environment variable of the functions."""
    for function in deployment.of_type("aws:lambda/function:Function"):
        variables = (function.inputs.get("environment") or {}).get("variables") or {}
        if name in variables:
            return str(variables[name])
    raise LocalCloudError(f"no deployed function has the environment variable {name}")


def _read_group(name: str, config: GroupConfig, instances: Instances) -> GroupView:
    primary = instances.holder(config.primary)
    return GroupView(
        name=name,
        primary=config.primary,
        fallback=config.fallback,
        zones=instances.zones(primary),
        # A group with instance requirements names no types; its slots do.
        instance_types=instances.instance_types(primary) or tuple(config.slots),
        weights=instances.weights(primary),
        slots=config.slots,
        on_demand_prices=config.on_demand_prices,
        drain_seconds=config.drain_seconds,
        prepared_by=config.prepared_by,
    )
