"""Settings of ``tensorboard``."""

from __future__ import annotations

from contracts import limits
from infra.catalogue import cpu_types
from infra.catalogue.accelerators import Architecture
from infra.schema.base import CpuType, Model


class TensorBoard(Model):
    """A launch template of a CPU instance that runs TensorBoard, with read-only access to checkpoints on EFS.

    The instance runs only while ``gpu-spot tensorboard`` does.
    """

    access_point: limits.Name
    """Access point of ``storage.fileSystem`` that holds the jobs' checkpoints."""
    instance_type: CpuType = "t4g.small"
    """Instance type without accelerators."""

    @property
    def architecture(self) -> Architecture:
        """CPU architecture of the instance."""
        return cpu_types.architecture(self.instance_type)
