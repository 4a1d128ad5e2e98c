"""Builders of the datasets of ``training[].prepare``, derived from the jobs that use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.catalogue import accelerators as catalogue
from infra.schema.jobs.prepare import GROUP_SUFFIX, CpuCapacity
from infra.schema.jobs.training import ON_THE_VOLUME, SHORTAGE_COST, Training


@dataclass(frozen=True)
class Builder:
    """A group that builds ``dataset`` (``<name>@<version>``).

    ``entry`` is derived from the first job that uses the dataset: it has the job's checkout, image and
    environment, the command of ``prepare``, its own volume and one CPU instance.
    """

    dataset: str
    entry: Training

    @property
    def group(self) -> str:
        """Name of the capacity group, and of the builder in the job table."""
        return self.entry.name


def dataset_of(job: Training) -> str:
    """Return ``<name>@<version>`` of a job's prepared dataset, empty if it has none."""
    return "" if job.prepare is None else f"{job.prepare.name or job.name}@{job.prepare.version}"


def group_of(job: Training) -> str:
    """Return the name of the group that builds a job's dataset, empty if it has none."""
    return "" if job.prepare is None else f"{job.prepare.name or job.name}{GROUP_SUFFIX}"


def builders(training: Iterable[Training]) -> tuple[Builder, ...]:
    """Return the builders of the jobs' datasets, one for each dataset.

    Raises:
        ValueError: two jobs define the same dataset differently.
    """
    first_jobs: dict[str, Training] = {}
    for job in training:
        if job.prepare is None:
            continue
        first = first_jobs.setdefault(group_of(job), job)
        for key in ("prepare", "repository", "dataset"):
            value, first_value = getattr(job, key), getattr(first, key)
            if key == "prepare":  # the name of a dataset defaults to that of its job
                value, first_value = (v.model_copy(update={"name": ""}) for v in (value, first_value))
            if value != first_value:
                raise ValueError(
                    f"{first.name!r} and {job.name!r} prepare {job.prepare.name or job.name!r} with "
                    f"different values of {key}; use the same prepare, repository and dataset, or another "
                    "name"
                )
    return tuple(Builder(dataset_of(job), _entry(job)) for job in first_jobs.values())


def _entry(job: Training) -> Training:
    prepare, capacity = job.prepare, job.capacity
    assert prepare is not None
    image = catalogue.image(capacity.types[0], capacity.ami, capacity.amis)
    changes = {
        "name": group_of(job),
        "capacity": CpuCapacity.model_validate(
            {
                "kind": "mixed-asg",
                "target": 1,
                "instanceTypes": (prepare.instance_type,),
                "ami": image,
                "rootVolumeGiB": capacity.root_volume_gib,
                "rootVolumeThroughputMib": capacity.root_volume_throughput_mib,
                # A dataset can wait, even for an urgent job.
                "fallback": {"enabled": True, "policyParameters": {"shortageCost": SHORTAGE_COST}},
            }
        ),
        "command": prepare.command,
        "environment": {
            name: value for name, value in job.environment.items() if name not in (job.matrix or ())
        },
        "matrix": None,
        "deadline": None,
        "schedule": None,
        "deadline_after": None,
        "budget": None,
        "expected_hours": None,
        "volume_gib": prepare.size_gib or job.volume_gib,
        "checkpoints": ON_THE_VOLUME,
        "datasets": (),
        "capacity_block": None,
        "artifacts": None,
        "snapshot_every_minutes": 0,  # a snapshot is created at the end
        "prepare": None,
    }
    return job.model_copy(update=changes)
