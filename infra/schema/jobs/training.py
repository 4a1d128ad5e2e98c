"""The shape of ``training[]``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.agent.config import check_places
from contracts.agent.names import DATA_DIR
from contracts.group import policies
from infra.catalogue import accelerators as catalogue
from infra.catalogue import cpu_types
from infra.catalogue.on_demand_prices import price
from infra.schema.base import Model, WrongKeyError
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import check_capacity, refused
from infra.schema.jobs import matrix as several
from infra.schema.jobs.moment import moment
from infra.schema.jobs.prepare import LONGEST_DATASET_NAME, Prepare
from infra.schema.reservation import CapacityBlock
from infra.schema.work import Work, check_names, check_text

ON_THE_VOLUME = "volume"
"""What ``checkpoints`` says where they lie beside the dataset."""
SHORTAGE_COST: Final = 2.0
"""A job can wait: unless told otherwise it goes on-demand only while spot is refused, not for a spot boot."""

_ON_INSTANCES: Final[dict[str, str]] = {
    "dataset": "datasets[], volumes from snapshots",
    "python": "an image",
    "artifacts": "$GPU_SPOT_ARTIFACTS on the file system",
    "repository_secret": "a public repository, or an image with the code",
    "prepare": "datasets[], volumes from snapshots",
    "capacity_block": "on instances",
    "deadline": "on instances",
    "budget": "on instances",
}
"""Keys that the node agent or the controller keeps, and what is allowed in their place on Kubernetes."""

_OF_A_VOLUME: Final = (
    "dataset",
    "prepare",
    "initialization_rate_mib",
    "throughput_mib",
    "snapshot_every_minutes",
)


class Python(Model):
    """A Python of the job's own, built once from a file of the repository."""

    version: limits.PythonVersion
    """Such as ``3.12``."""
    requirements: limits.RequirementsFile
    """A file of the repository: pip's, or a lock as PEP 751 has it."""


class Training(Work):
    """A training job on one instance, which its data volume follows from zone to zone.

    The command runs in a container, or with a Python that is built once, or with what the machine image has.
    """

    capacity_block: CapacityBlock | None = None
    """What has been bought in advance: between its dates the job runs there, and it has no other fallback."""
    repository: limits.CodeRepository
    """The code, by its https address."""
    revision: limits.Revision
    """The commit that runs; another one is another run."""
    command: limits.Command
    """The program and its arguments, in the checkout."""
    dataset: limits.DatasetFolder | None = None
    """A folder in S3 that is copied to the volume when that is new."""
    volume_gib: Annotated[limits.VolumeGibOrNone, Field(alias="volumeGiB")] = 100
    """GiB of the data volume. With 0 there is none: checkpoints lie on EFS, and the job runs in any zone at
    once."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """As of a dataset, for the job's own volume."""
    throughput_mib: limits.ThroughputMib = 125
    """The volume's, MiB/s."""
    snapshot_every_minutes: limits.SnapshotEveryMinutes = 30
    """A snapshot of the volume while the job trains, where there is a new checkpoint; 0: only at moves."""
    checkpoints: limits.Name = ON_THE_VOLUME
    """Where they lie: beside the dataset on the volume, or an access point of ``storage.fileSystem``."""
    max_restarts: limits.MaxRestarts = 5
    """Failures in a row without a new checkpoint after which the job has failed."""
    stalled_after_minutes: limits.StalledAfterMinutes = 60
    """So long without a new checkpoint, output or work on a GPU counts as a failure; 0: nothing does."""
    image: limits.ContainerImage | None = None
    """The container that the command runs in, by its digest."""
    python: Python | None = None
    """A Python of the job's own, in place of a container."""
    artifacts: limits.ArtifactsFolder | None = None
    """A folder in S3 for what the command leaves in ``$GPU_SPOT_ARTIFACTS``."""
    repository_secret: limits.SecretName | None = None
    """The secret with the token of a private repository."""
    submodules: bool = False
    """Whether they are fetched, too."""
    prepare: Prepare | None = None
    """What makes the dataset once, before any GPU is paid; the volume is made from its snapshot."""
    matrix: several.Matrix | None = None
    """Values by environment variable: an experiment for each combination. Up to 20 are a job each; more share
    one group, whose instances take them one after another."""
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Machines that train together; more than one do so on Kubernetes only."""
    deadline: str | None = None
    """When the job is to be done, ISO 8601 with a zone: on-demand is then bought by that. The command must
    tell its steps in ``$GPU_SPOT_TELL``."""
    budget: Annotated[float, Field(ge=0.01, le=1_000_000)] | None = None
    """US dollars that the run's instances may cost: once they have, it saves and is held. Each experiment of
    a ``matrix`` has one of its own."""

    @property
    def deadline_at(self) -> float:
        """The deadline in epoch seconds, 0 without one."""
        return 0.0 if self.deadline is None else moment(self.deadline).timestamp()

    @field_validator("deadline")
    @classmethod
    def _kept_by_spot_and_on_demand(cls, deadline: str | None, info: ValidationInfo) -> str | None:
        if deadline is None:
            return None
        moment(deadline)
        given = info.data
        if given.get("capacity_block") is not None:
            raise ValueError("beside capacityBlock, allowed: one of them (a block has its own dates)")
        if "capacity" not in given:
            return deadline
        capacity: Capacity = given["capacity"]
        fallback = capacity.fallback
        if not fallback.enabled:
            raise ValueError("with fallback.enabled false, allowed: true (on-demand keeps a deadline)")
        if fallback.policy != policies.DEFAULT or fallback.knobs != {"shortageCost": SHORTAGE_COST}:
            raise ValueError(
                "beside fallback.policy or fallback.knobs, allowed: one of them (a deadline is a policy)"
            )
        if capacity.on_demand_base or capacity.spot_percentage != 100:
            raise ValueError("beside onDemandBase or spotPercentage, allowed: 0 and 100")
        return deadline

    @field_validator("budget")
    @classmethod
    def _of_what_is_paid_by_the_hour(cls, budget: float | None, info: ValidationInfo) -> float | None:
        if budget is None:
            return None
        if info.data.get("capacity_block") is not None:
            raise ValueError("beside capacityBlock, allowed: one of them (a block is paid beforehand)")
        region = str((info.context or {}).get("region", ""))
        types = info.data["capacity"].types if "capacity" in info.data else ()
        if unknown := sorted(kind for kind in types if price(kind, region) is None):
            raise ValueError(
                f"{', '.join(unknown)} in {region} {'has' if len(unknown) == 1 else 'have'} no known price, "
                "allowed: types and regions of infra/catalogue/on_demand_prices.py"
            )
        return budget

    @field_validator("capacity")
    @classmethod
    def _one_instance(cls, capacity: Capacity) -> Capacity:
        if capacity.unit != "instances":
            raise ValueError(f"unit {capacity.unit!r}, allowed: 'instances' (a job has one, of any size)")
        if not capacity.is_kept:
            raise ValueError("fleetType 'request' is never replenished, allowed: 'maintain'")
        fallback = capacity.fallback
        if fallback.warm_instances is None:
            # The volume takes longer to come than the instance, and a warm one would outlast the job.
            fallback = fallback.model_copy(update={"warm_instances": 0})
        if fallback.policy == policies.DEFAULT and not fallback.knobs:
            fallback = fallback.model_copy(update={"knobs": {"shortageCost": SHORTAGE_COST}})
        capacity = capacity.model_copy(update={"fallback": fallback})
        catalogue.check_volumes(capacity.types)
        return capacity

    @property
    def shares_group(self) -> bool:
        """Whether this is one job with several experiments, which its instances take one after another."""
        return self.matrix is not None and several.count(self.matrix) > several.MOST

    @property
    def has_volume(self) -> bool:
        """Whether a data volume of its own follows the job."""
        return self.volume_gib > 0

    @property
    def fallback_capacity(self) -> Capacity:
        """What the fallback starts: with a Capacity Block the one type that was bought there."""
        if self.capacity_block is None:
            return self.capacity
        types = {"instance_types": (self.capacity_block.instance_type,), "instance_requirements": None}
        return self.capacity.model_copy(update=types)

    @field_validator("capacity_block")
    @classmethod
    def _instead_of_on_demand(cls, block: CapacityBlock | None, info: ValidationInfo) -> CapacityBlock | None:
        if block is None or "capacity" not in info.data:
            return block
        capacity: Capacity = info.data["capacity"]
        fallback = capacity.fallback
        if not fallback.enabled or fallback.reservation is not None or fallback.warm_instances:
            raise ValueError(
                f"{block.reservation} is the job's fallback, allowed: beside it no fallback.enabled: false, "
                "fallback.reservation or fallback.warmInstances"
            )
        if capacity.on_demand_base:
            raise ValueError(
                f"{block.reservation} beside onDemandBase, which is kept in any case, allowed: 0"
            )
        catalogue.check_mix((*capacity.types, block.instance_type), capacity.ami, capacity.amis)
        catalogue.check_volumes((block.instance_type,))
        return block

    @field_validator("dataset")
    @classmethod
    def _not_over_datasets(cls, dataset: str | None, info: ValidationInfo) -> str | None:
        if dataset is not None:
            check_places([one.path for one in info.data.get("datasets", ())], [f"{DATA_DIR}/datasets"])
        return dataset

    @field_validator("image")
    @classmethod
    def _with_gpus_to_hand_over(cls, image: str | None, info: ValidationInfo) -> str | None:
        if image is not None and "capacity" in info.data and not info.data["capacity"].is_nvidia:
            raise ValueError("a container gets NVIDIA's GPUs only, allowed: instance types that have them")
        return image

    @field_validator("python")
    @classmethod
    def _instead_of_an_image(cls, python: Python | None, info: ValidationInfo) -> Python | None:
        if python is not None and info.data.get("image") is not None:
            raise ValueError("beside image, allowed: one of them (an image brings its own)")
        return python

    @field_validator("prepare")
    @classmethod
    def _of_the_jobs_image(cls, prepare: Prepare | None, info: ValidationInfo) -> Prepare | None:
        given = info.data
        if prepare is None or not {"name", "capacity", "volume_gib", "environment"} <= given.keys():
            return prepare
        wanted = given["capacity"].architecture
        if (found := cpu_types.architecture(prepare.instance_type)) != wanted:
            raise ValueError(
                f"instanceType {prepare.instance_type!r} is {found}, allowed: {wanted}, as the image of the "
                "job's types is"
            )
        if prepare.size_gib is not None and prepare.size_gib > given["volume_gib"]:
            raise ValueError(
                f"sizeGiB {prepare.size_gib}, allowed: at most volumeGiB {given['volume_gib']} of the job"
            )
        if len(name := prepare.name or given["name"]) > LONGEST_DATASET_NAME:
            raise ValueError(f"name {name!r}, allowed: at most {LONGEST_DATASET_NAME} characters")
        check_text(prepare.command, given["environment"])
        return prepare

    @field_validator("matrix")
    @classmethod
    def _of_jobs_side_by_side(
        cls, matrix: several.Matrix | None, info: ValidationInfo
    ) -> several.Matrix | None:
        if matrix is None or not {"name", "environment", "capacity_block"} <= info.data.keys():
            return matrix
        check_names(matrix)
        several.check(matrix, info.data["name"], info.data["environment"])
        if info.data["capacity_block"] is not None:
            raise ValueError("beside capacityBlock, allowed: one of them (a block is one job's)")
        return matrix

    @model_validator(mode="after")
    def _several_instances_for_several_experiments(self) -> Training:
        if self.shares_group:
            self._check_shared()
        elif self.capacity.target != 1:
            raise WrongKeyError(
                ("capacity", "target"),
                f"{self.capacity.target}, allowed: 1 (a job and its volume are in one place at a time; "
                f"more only with a matrix of more than {several.MOST} experiments, which share a group)",
            )
        return self

    def _check_shared(self) -> None:
        """Raise ``ValueError`` for what experiments cannot have that share a group."""
        assert self.matrix is not None
        given = f"matrix with {several.count(self.matrix)} experiments, which share one group"
        if self.has_volume:
            raise ValueError(
                f"{given}, beside volumeGiB {self.volume_gib}, allowed: 0 (checkpoints lie on EFS)"
            )
        for key in ("deadline", "budget"):
            if getattr(self, key) is not None:
                raise ValueError(
                    f"{given}, beside {key}, allowed: with at most {several.MOST} experiments, a group each"
                )
        every = {variable: " ".join(values) for variable, values in self.matrix.items()}
        try:
            check_text(self.command, {**self.environment, **every})
        except ValueError as error:
            raise ValueError(f"{given}: {error}") from None

    @model_validator(mode="after")
    def _nothing_on_no_volume(self) -> Training:
        if self.has_volume:
            return self
        for key in _OF_A_VOLUME:
            if key in self.model_fields_set and getattr(self, key) is not None:
                given = type(self).model_fields[key].alias
                raise ValueError(
                    f"{given} beside volumeGiB 0, allowed: with a volume; a job without one reads datasets[]"
                )
        if self.checkpoints == ON_THE_VOLUME:
            raise ValueError(
                f"checkpoints {ON_THE_VOLUME!r} beside volumeGiB 0, allowed: an access point of "
                "storage.fileSystem"
            )
        return self

    @model_validator(mode="after")
    def _can_run_there(self) -> Training:
        if self.runs_on == "kubernetes":
            self._check_pod()
        elif self.nodes > 1:
            raise ValueError(
                f"nodes {self.nodes} beside runsOn {self.runs_on!r}, allowed: 1, or 'kubernetes'"
            )
        return self

    def _check_pod(self) -> None:
        """Raise ``ValueError`` for what nobody would do for a job on Kubernetes."""
        if self.image is None:
            raise refused("without an image", "with one, which runs as a pod")
        for key, instead in _ON_INSTANCES.items():
            if getattr(self, key) is not None:
                raise refused(f"beside {type(self).model_fields[key].alias or key}", instead)
        if self.has_volume:
            raise refused(
                f"beside volumeGiB {self.volume_gib}",
                "0 (checkpoints on the file system, datasets[] from snapshots)",
            )
        if "stalled_after_minutes" in self.model_fields_set and self.stalled_after_minutes:
            given = f"beside stalledAfterMinutes {self.stalled_after_minutes}"
            raise refused(given, "0 (nobody looks there)")
        if self.nodes > 1 and self.matrix is not None:
            raise refused(f"beside nodes {self.nodes} and matrix", "one of the two")
        check_capacity(self.capacity)
