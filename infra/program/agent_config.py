"""The node agent's configuration: what all entries have in it; the rest is filled by an entry's kind."""

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
class InstancePlace:
    """Where an instance stands: its stack, its side, what that side's groups and logs are called."""

    region: str
    stack: str
    side: agent.GroupSide
    hooks: agent.Hooks | None
    log_group: str


def build(
    entry: GroupEntry, place: InstancePlace, registry_table: str, work: Mapping[str, Any]
) -> agent.Config:
    """Return the configuration of an entry's instances; ``work`` are the fields that its kind fills."""
    return agent.Config(
        region=place.region,
        stack=place.stack,
        group=entry.name,
        side=place.side,
        registry_table=registry_table,
        hooks=place.hooks,
        datasets=tuple(
            agent.Dataset(**same_names(agent.Dataset, dataset), device=device)
            for dataset, device in zip(entry.datasets, DATASET_DEVICES, strict=False)
        ),
        metrics=agent.Metrics(log_group=place.log_group),
        nvidia=entry.capacity.is_nvidia,
        **work,
    )


def same_names(part: type[Any], model: Model) -> dict[str, Any]:
    """Return the settings of ``model`` that a contract's dataclass has by the same name."""
    shared = {field.name for field in dataclasses.fields(part)} & type(model).model_fields.keys()
    return {name: getattr(model, name) for name in shared}
