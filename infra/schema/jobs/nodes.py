"""Settings of ``training[].nodes``: how many nodes train together."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from contracts.agent.nodes import MAX_NODES, JobNodes
from infra.catalogue.network_interfaces import check_efa
from infra.schema.base import Model
from infra.schema.capacity import Capacity

NodeCount: TypeAlias = Annotated[int, Field(ge=1, le=MAX_NODES)]


class TrainingNodes(Model):
    """How many nodes train together: instances of one zone, or pods. A number means that all are needed."""

    min: NodeCount = 1
    """Number of nodes below which the job waits. Above it, it continues when a node is lost."""
    max: NodeCount = 1
    """Number of nodes that the job asks for; on instances ``capacity.target``."""
    zone: str | None = None
    """Availability Zone of the instances. Required if ``network.zones`` has several."""
    placement_group: bool = False
    """Whether the instances are in a cluster placement group: close together, but launched less often,
    because AWS needs capacity in one place. Best with one instance type."""
    efa: bool = False
    """Whether the instances have Elastic Fabric Adapters, all that their type has. The types must have the
    same number, and the machine image EFA's driver, as AWS's has. AWS recommends ``placementGroup``, too."""

    @model_validator(mode="after")
    def _min_within_max(self) -> TrainingNodes:
        if self.min > self.max:
            raise ValueError(f"min must be from 1 to max ({self.max}), not {self.min}")
        for key in (*self.between_instances, *(["zone"] if self.zone is not None else [])):
            if self.max == 1:
                raise ValueError(f"{key} needs several nodes; set max above 1, or remove {key}")
        return self

    @property
    def between_instances(self) -> tuple[str, ...]:
        """The keys that are set of those about the network between instances."""
        return tuple(
            key for key, value in (("placementGroup", self.placement_group), ("efa", self.efa)) if value
        )

    def check_types(self, capacity: Capacity) -> None:
        """Raise ``ValueError`` for instances that have no EFA; placement groups take all of the catalogue.

        EFA in the launch template of a Spot Fleet is refused: no guide of AWS has it.
        """
        if self.efa and capacity.is_fleet:
            raise ValueError(f"efa needs capacity kind 'mixed-asg', not {capacity.kind!r}")
        if self.efa:
            check_efa(capacity.types)

    @property
    def needs_all(self) -> bool:
        """Whether the job has several nodes and none of them goes on without the others."""
        return 1 < self.max == self.min

    @property
    def setting(self) -> JobNodes | None:
        """The nodes as the agent reads them; None for a job on one instance."""
        return JobNodes(self.min, self.max) if self.max > 1 else None

    def __str__(self) -> str:
        return str(self.max) if self.min == self.max else f"{self.min} to {self.max}"


def _of_a_number(value: object) -> object:
    return {"min": value, "max": value} if isinstance(value, int) else value


NodesSetting: TypeAlias = Annotated[
    TrainingNodes, BeforeValidator(_of_a_number, json_schema_input_type=NodeCount | TrainingNodes)
]
