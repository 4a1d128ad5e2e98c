"""What the controller must know of a group: the contract, filled from a stack file's entry.

Settings that both call by the same name are passed on; no other module between them names one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from contracts.group.config import GroupConfig, PolicyChoice
from infra.program.agent_config import same_names
from infra.schema.base import Model
from infra.schema.work import GroupEntry


def build(entry: GroupEntry, **derived: Any) -> GroupConfig:
    """Return a group's configuration without what AWS names.

    Args:
        entry: the service, job or shared host of the stack file. Its settings, its capacity's and its
            fallback's count under their own names.
        derived: what follows from several of its settings, by the names of `GroupConfig`.
    """
    capacity, fallback = entry.capacity, entry.capacity.fallback
    same = {
        name: value
        for part in cast(Sequence[Model], (fallback, capacity, entry))
        for name, value in same_names(GroupConfig, part).items()
        # By the same name an entry has whole sections (`fallback`, `onPremises`), dates and places.
        if type(value) in (bool, int, float) or name == "kind"
    }
    return GroupConfig(
        **{
            **same,
            "primary": "",
            "base": capacity.on_demand_base,
            "maximum": capacity.maximum,
            "policy": PolicyChoice(fallback.policy, fallback.knobs),
            "reserved": fallback.reservation.count if fallback.reservation else 0,
            **derived,
        }
    )
