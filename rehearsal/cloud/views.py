"""Capacity groups and worker registry of a deployment, as a rehearsal uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts import names
from contracts.group import config as group_config
from contracts.group.config import GroupConfig
from lambdas.aws.settings import read_group_parameters
from lambdas.core.model import GroupRole
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.deployment import Deployment
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
        config: its stored configuration.
    """

    name: str
    primary: str
    fallback: str | None
    zones: tuple[str, ...]
    instance_types: tuple[str, ...]
    weights: Mapping[str, int]
    config: GroupConfig

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
    groups = read_group_parameters(deployment.clients("ssm"), names.parameter_root(deployment.stack))
    return tuple(
        _read_group(group, group_config.parse(texts[names.PARAMETER_CONFIG]), instances)
        for group, texts in sorted(groups.items())
        if names.PARAMETER_CONFIG in texts
    )


def _read_group(name: str, config: GroupConfig, instances: Instances) -> GroupView:
    primary = instances.holder(config.primary)
    return GroupView(
        name=name,
        primary=config.primary,
        fallback=config.fallback,
        zones=instances.zones(primary),
        # A group with instance requirements names no types; its slots do.
        instance_types=instances.instance_types(primary) or tuple(config.slots),
        weights={option.instance_type: option.weight for option in primary.options if option.instance_type},
        config=config,
    )
