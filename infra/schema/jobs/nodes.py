"""Settings of ``training[].nodes``: how many nodes train together."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from contracts.agent.nodes import MAX_NODES, JobNodes
from infra.schema.base import Model

NodeCount: TypeAlias = Annotated[int, Field(ge=1, le=MAX_NODES)]


class TrainingNodes(Model):
    """How many nodes train together: instances of one zone, or pods. A number means that all are needed."""

    min: NodeCount = 1
    """Number of nodes below which the job waits. Above it, it continues when a node is lost."""
    max: NodeCount = 1
    """Number of nodes that the job asks for: ``capacity.target``."""
    zone: str | None = None
    """Availability Zone of the instances. Required if ``network.zones`` has several."""

    @model_validator(mode="after")
    def _min_within_max(self) -> TrainingNodes:
        if self.min > self.max:
            raise ValueError(f"min {self.min} with max {self.max}, allowed: 1 to {self.max}")
        return self

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
