"""What was deployed, as the rehearsal needs it: the capacity groups, and the worker registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts import names
from contracts.group import config as group_config
from contracts.group.config import GroupConfig
from lambdas.core.model import GroupRole
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.record import Deployment
from rehearsal.cloud.instances import Instances


@dataclass(frozen=True, slots=True)
class GroupView:
    """A capacity group as it was deployed.

    Attributes:
        name: the group's name.
        primary: what asks for the target, mostly on spot: an Auto Scaling group's name or a Spot Fleet's id.
        fallback: the on-demand Auto Scaling group behind it, None where there is none.
        zones: availability zones it may launch in.
        instance_types: types it may launch, in order of preference.
        weights: for how much of a capacity an instance counts, by type; 1 where none is named.
        slots: workers on an instance, by type.
        on_demand_prices: what on-demand in the place of an instance costs (US dollars an hour), by type.
        drain_seconds: how long before a deadline workers stop taking work.
        prepared_by: the group that prepares its dataset, itself perhaps; empty where nobody does.
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
        """Whether it is there to prepare a dataset for others."""
        return self.prepared_by == self.name

    def side(self, side: GroupRole) -> str:
        """Return the group or fleet of a side."""
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
        """The names of both sides, or of the one that there is."""
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


def registry_table(deployment: Deployment) -> str:
    """Return the name of the worker registry, as the deployed functions know it."""
    for function in deployment.of_type("aws:lambda/function:Function"):
        variables = (function.inputs.get("environment") or {}).get("variables") or {}
        if names.ENV_REGISTRY_TABLE in variables:
            return str(variables[names.ENV_REGISTRY_TABLE])
    raise LocalCloudError(f"no deployed function has the environment variable {names.ENV_REGISTRY_TABLE}")


def _read_group(name: str, config: GroupConfig, instances: Instances) -> GroupView:
    primary = instances.holder(config.primary)
    return GroupView(
        name=name,
        primary=config.primary,
        fallback=config.fallback,
        zones=instances.zones(primary),
        # A group by requirements names no types; its slots do.
        instance_types=instances.instance_types(primary) or tuple(config.slots),
        weights=instances.weights(primary),
        slots=config.slots,
        on_demand_prices=config.on_demand_prices,
        drain_seconds=config.drain_seconds,
        prepared_by=config.prepared_by,
    )
