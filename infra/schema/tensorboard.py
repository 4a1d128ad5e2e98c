"""The shape of ``tensorboard``: who shows the curves of all jobs, while somebody looks."""

from __future__ import annotations

from pydantic import field_validator

from contracts import limits
from infra.catalogue import cpu_types
from infra.catalogue.accelerators import Architecture
from infra.schema.base import Model


class TensorBoard(Model):
    """A launch template for a CPU instance that sees the jobs' folder of the file system, and only reads it.

    Nothing runs, and nothing is paid, until ``gpu-spot tensorboard`` starts it.
    """

    access_point: limits.Name
    """Of ``storage.fileSystem``, where the jobs' checkpoints lie."""
    instance_type: str = "t4g.small"
    """Without accelerators."""

    @property
    def architecture(self) -> Architecture:
        """Of its processors."""
        return cpu_types.architecture(self.instance_type)

    @field_validator("instance_type")
    @classmethod
    def _without_accelerators(cls, name: str) -> str:
        cpu_types.architecture(name)
        return name
