"""The experiments of a job with a ``matrix``, each as an entry of its own."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.agent import experiments as names
from infra.schema.jobs.training import Training
from infra.schema.work import check_text


def experiments(job: Training) -> tuple[Training, ...]:
    """Return a job's experiments as entries of their own; the job itself where it has none of those.

    ``matrix`` of an experiment are its own values. They, and nothing else, make its name, so that another
    value, or another order, renames nobody. All share the dataset that one of them prepares.
    """
    if job.matrix is None or job.shares_group:
        return (job,)
    return tuple(_experiment(job, chosen) for chosen in names.combinations(job.matrix))


def _experiment(job: Training, chosen: Mapping[str, str]) -> Training:
    name = names.name_of(job.name, chosen)
    environment = {**job.environment, **chosen}
    check_text(job.command, environment)
    changes = {
        "name": name,
        "environment": environment,
        "matrix": {variable: (value,) for variable, value in chosen.items()},
        "artifacts": job.artifacts and f"{job.artifacts}{name}/",
        "prepare": job.prepare and job.prepare.model_copy(update={"name": job.prepare.name or job.name}),
    }
    return job.model_copy(update=changes)
