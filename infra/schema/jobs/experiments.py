"""The experiments of a job with a ``matrix``, each as a separate entry."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.agent import experiments as names
from infra.schema.jobs.training import Training
from infra.schema.work import check_text


def experiments(job: Training) -> tuple[Training, ...]:
    """Return a job's experiments as separate entries; the job itself if it has no separate experiments.

    An experiment's ``matrix`` has its own values only. Its name depends on these values alone: another value
    in the matrix, or another order, renames no experiment. All experiments share one prepared dataset.
    """
    if job.matrix is None or job.shares_group:
        return (job,)
    return tuple(_experiment(job, values) for values in names.combinations(job.matrix))


def _experiment(job: Training, values: Mapping[str, str]) -> Training:
    name = names.name_of(job.name, values)
    environment = {**job.environment, **values}
    check_text(job.command, {**environment, **job.secrets})
    changes = {
        "name": name,
        "environment": environment,
        "matrix": {variable: (value,) for variable, value in values.items()},
        "artifacts": job.artifacts and f"{job.artifacts}{name}/",
        "prepare": job.prepare and job.prepare.model_copy(update={"name": job.prepare.name or job.name}),
    }
    return job.model_copy(update=changes)
