"""The node agent's configuration: the part that all entries have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.agent import config as agent
from contracts.agent.names import DATASET_DEVICES
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
            agent.Dataset(snapshot=dataset.snapshot, device=device, path=dataset.path)
            for dataset, device in zip(entry.datasets, DATASET_DEVICES, strict=False)
        ),
        metrics=agent.Metrics(log_group=context.log_group),
        nvidia=entry.capacity.is_nvidia,
        **work,
    )
