"""Who prepares the datasets of ``training[].prepare``: derived from the jobs that they are prepared for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.catalogue import accelerators as catalogue
from infra.schema.jobs.prepare import GROUP_SUFFIX, CpuCapacity
from infra.schema.jobs.training import ON_THE_VOLUME, SHORTAGE_COST, Training


@dataclass(frozen=True)
class Builder:
    """One group that prepares ``dataset`` (``<name>@<version>``).

    ``entry`` is the first job that names it, changed to do that: its checkout, image and environment, the
    command of ``prepare``, a volume of its own, one CPU instance.
    """

    dataset: str
    entry: Training

    @property
    def group(self) -> str:
        """The name of its capacity group, which is its name in the job table, too."""
        return self.entry.name


def dataset_of(job: Training) -> str:
    """Return ``<name>@<version>`` of what a job prepares, empty where it prepares nothing."""
    return "" if job.prepare is None else f"{job.prepare.name or job.name}@{job.prepare.version}"


def group_of(job: Training) -> str:
    """Return the name of the group that prepares a job's dataset, empty where it prepares nothing."""
    return "" if job.prepare is None else f"{job.prepare.name or job.name}{GROUP_SUFFIX}"


def builders(training: Iterable[Training]) -> tuple[Builder, ...]:
    """Return who prepares what the jobs ask for, one for each dataset.

    Raises:
        ValueError: two jobs mean different things by one dataset.
    """
    first: dict[str, Training] = {}
    for job in training:
        if job.prepare is None:
            continue
        other = first.setdefault(group_of(job), job)
        for what in ("prepare", "repository", "dataset"):
            mine, theirs = getattr(job, what), getattr(other, what)
            if what == "prepare":  # one may name what is the other's name
                mine, theirs = (one.model_copy(update={"name": ""}) for one in (mine, theirs))
            if mine != theirs:
                raise ValueError(
                    f"{other.name!r} and {job.name!r} prepare {job.prepare.name or job.name!r}, each with "
                    f"another {what}, allowed: the same prepare, repository and dataset, or another name"
                )
    return tuple(Builder(dataset_of(job), _entry(job)) for job in first.values())


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
                # A dataset can wait, however urgent the job is; nobody stands by for it.
                "fallback": {
                    "enabled": True,
                    "warmInstances": 0,
                    "knobs": {"shortageCost": SHORTAGE_COST},
                },
            }
        ),
        "command": prepare.command,
        "environment": {
            name: value for name, value in job.environment.items() if name not in (job.matrix or ())
        },
        "matrix": None,
        "deadline": None,
        "budget": None,
        "volume_gib": prepare.size_gib or job.volume_gib,
        "checkpoints": ON_THE_VOLUME,
        "datasets": (),
        "capacity_block": None,
        "artifacts": None,
        "snapshot_every_minutes": 0,  # one is taken at the end
        "prepare": None,
    }
    return job.model_copy(update=changes)
