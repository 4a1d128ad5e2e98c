"""Where a job's checkpoints are: another place, where it would begin at step 0, fails the preview."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from contracts import names
from infra.components import fixed
from infra.components.capacity import parameter
from infra.schema import Training
from infra.scope import Scope

_START_OVER = "set startOver: true: the job then begins at step 0 there"
_DATASET = "rename the job; or delete its volume and its item in the job table, and set startOver: true"
"""A volume that is created from a dataset holds checkpoints, too; the agent refuses another one."""


def stay(job: Training, scope: Scope, paths: Mapping[str, str], dataset: str = "") -> pulumi.Output[str]:
    """Declare the parameter that keeps the location; return the location.

    The output raises ``pulumi.RunError`` for another one without ``startOver``. No data is deleted: the old
    location keeps its checkpoints, and copying them to the new one first keeps the job's progress. ``paths``
    are those on the file system by access point; ``dataset`` is the prepared one on the volume, if any.
    """
    location = (
        job.checkpoints if job.access_point is None else f"{paths[job.access_point]} on the file system"
    )
    if dataset:
        location += f" with dataset {dataset}"
    stored = parameter.declare(
        scope,
        scope.parent,
        job.name,
        names.PARAMETER_CHECKPOINTS,
        "Where checkpoints are",
        location,
        is_initial_value=not job.start_over,
    )
    return fixed.unchanged(
        f"training.{job.name}.checkpoints",
        location,
        stored.insecure_value.apply(str),
        f"the job {job.name!r}",
        _DATASET if dataset else _START_OVER,
    )
