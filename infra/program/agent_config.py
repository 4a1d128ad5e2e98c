"""The node agent's configuration: the part that all entries have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.agent import config as agent
from contracts.agent.names import DATASET_DEVICES
from infra.schema.base import Model
from infra.schema.work import GroupEntry


@dataclass(frozen=True)
class InstanceContext:
    """The stack and the group role of an instance, with the names of hooks and logs."""

    region: str
    stack: str
    group_role: agent.GroupRoleName
    hooks: agent.Hooks | None
    log_group: str


def build(
    entry: GroupEntry, context: InstanceContext, registry_table: str, work: Mapping[str, Any]
) -> agent.Config:
    """Return the configuration of an entry's instances; ``work`` has the fields of the entry's kind."""
    return agent.Config(
        region=context.region,
        stack=context.stack,
        group=entry.name,
        group_role=context.group_role,
        registry_table=registry_table,
        hooks=context.hooks,
        datasets=tuple(
            agent.Dataset(**shared_settings(agent.Dataset, dataset), device=device)
            for dataset, device in zip(entry.datasets, DATASET_DEVICES, strict=False)
        ),
        metrics=agent.Metrics(log_group=context.log_group),
        nvidia=entry.capacity.is_nvidia,
        **work,
    )


def shared_settings(part: type[Any], model: Model) -> dict[str, Any]:
    """Return the settings of ``model`` that the dataclass ``part`` has under the same field name."""
    shared = {field.name for field in dataclasses.fields(part)} & type(model).model_fields.keys()
    return {name: getattr(model, name) for name in shared}
