"""The controller's configuration of a group, derived from an entry of the stack file.

Settings with the same field name in both are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from contracts.group.config import GroupConfig, PolicyChoice
from infra.program.agent_config import shared_settings
from infra.schema.base import Model
from infra.schema.work import GroupEntry


def build(entry: GroupEntry, **derived: Any) -> GroupConfig:
    """Return a group's configuration without the names that AWS assigns.

    Args:
        entry: the service, job or shared host. The settings of the entry, its capacity and its fallback are
            copied if `GroupConfig` has a field of that name.
        derived: fields of `GroupConfig` that depend on several settings.
    """
    capacity, fallback = entry.capacity, entry.capacity.fallback
    copied = {
        name: value
        for part in cast(Sequence[Model], (fallback, capacity, entry))
        for name, value in shared_settings(GroupConfig, part).items()
        # Sections (`fallback`, `onPremises`), dates and locations have the same names, but other types.
        if type(value) in (bool, int, float) or name == "kind"
    }
    return GroupConfig(
        **{
            **copied,
            "primary": "",
            "base": capacity.on_demand_base,
            "maximum": capacity.maximum,
            "policy": PolicyChoice(fallback.policy, fallback.policy_parameters),
            "reserved": fallback.reservation.count if fallback.reservation else 0,
            **derived,
        }
    )
