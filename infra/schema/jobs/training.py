"""Settings of ``training[]``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.agent.config import check_mount_paths
from contracts.agent.names import DATA_DIR
from contracts.agent.nodes import MAX_NAME_LENGTH
from contracts.group import policies
from infra.catalogue import accelerators as catalogue
from infra.catalogue import cpu_types
from infra.catalogue.on_demand_prices import price
from infra.schema.base import FROM_TEXT, Model, WrongKeyError
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import check_capacity, unsupported_error
from infra.schema.jobs import matrix as matrices
from infra.schema.jobs.nodes import NodesSetting, TrainingNodes
from infra.schema.jobs.prepare import MAX_DATASET_NAME_LENGTH, Prepare
from infra.schema.jobs.schedule import Duration, Schedule
from infra.schema.reservation import CapacityBlock
from infra.schema.work import Work, check_names, check_text

ON_THE_VOLUME = "volume"
"""Value of ``checkpoints`` for checkpoints on the data volume."""
SHORTAGE_COST: Final = 2.0
"""Default for jobs, which can wait: they use On-Demand while Spot launches fail, not while a Spot Instance
boots."""

_ON_INSTANCES: Final[dict[str, str]] = {
    "dataset": "use datasets[], volumes from snapshots",
    "python": "use an image",
    "artifacts": "use $GPU_SPOT_ARTIFACTS on the file system",
    "repository_secret": "use a public repository, or an image with the code",
    "prepare": "use datasets[], volumes from snapshots",
    "capacity_block": "run the job on instances",
    "deadline": "run the job on instances",
    "budget": "run the job on instances",
    "schedule": "run the job on instances, or write a CronJob",
}
"""Fields that the node agent or the controller implements, and their alternatives on Kubernetes."""

_ON_ONE_INSTANCE: Final[dict[str, str]] = {
    "matrix": "remove one of them",
    "deadline": "remove it",
    "budget": "remove it",
    "image": "use python, or the Python of the machine image (other nodes do not reach a container's ports)",
    "artifacts": "use $GPU_SPOT_ARTIFACTS on the file system",
    "capacity_block": "remove it",
    "schedule": "use one node",
}
"""Fields that a job of several instances does not support, and their alternatives."""

_VOLUME_FIELDS: Final = (
    "dataset",
    "prepare",
    "initialization_rate_mib",
    "throughput_mib",
    "snapshot_every_minutes",
)


class Python(Model):
    """A Python environment for the job, built once from a file of the repository."""

    version: limits.PythonVersion
    """Python version, such as ``3.12``."""
    requirements: limits.RequirementsFile
    """Path in the repository of a pip requirements file or a PEP 751 lock file."""


class Training(Work):
    """A training job on one instance, whose data volume follows it from zone to zone, or on several.

    The command runs in a container, or in a Python environment, or with the Python of the machine image.
    """

    capacity_block: CapacityBlock | None = None
    """A purchased Capacity Block. The job runs in it from its start to its end, and has no other fallback."""
    repository: limits.CodeRepository
    """HTTPS URL of the Git repository with the code."""
    revision: limits.Revision
    """Commit to run, as the full hash. A new revision is a new run."""
    command: limits.Command
    """Program and arguments; they run in the checkout."""
    dataset: limits.DatasetLocation | None = None
    """S3 prefix whose objects are copied to the data volume when the volume is created."""
    dataset_gib: Annotated[limits.VolumeGib | None, Field(alias="datasetGiB")] = None
    """Size of ``dataset`` in GiB, to check that the volume can hold it: its size in S3 is not read."""
    volume_gib: Annotated[limits.OptionalVolumeGib, Field(alias="volumeGiB")] = 100
    """Size of the data volume in GiB. 0: no volume; checkpoints are on EFS, and the job can start in any
    zone."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """Volume initialization rate of the data volume in MiB/s, which is charged. Default: blocks are loaded
    when they are read."""
    throughput_mib: limits.ThroughputMib = 125
    """Throughput of the data volume in MiB/s."""
    snapshot_every_minutes: limits.SnapshotIntervalMinutes = 30
    """Minutes between snapshots of the data volume while the job runs, taken if there is a new checkpoint. 0:
    only when the volume moves to another zone."""
    checkpoints: limits.Name = ON_THE_VOLUME
    """Location of checkpoints: ``volume``, or the name of an access point of ``storage.fileSystem``."""
    start_over: bool = False
    """Whether the job may begin at step 0 in a new place of its checkpoints. Otherwise the preview refuses:
    copy them first, or keep the place."""
    max_restarts: limits.MaxRestarts = 5
    """Number of restarts in a row, without a new checkpoint, after which the job has failed."""
    stalled_after_minutes: limits.StalledAfterMinutes = 60
    """Minutes without a new checkpoint, output or GPU activity after which the job counts as hung and is
    restarted. 0 disables the check."""
    image: limits.ContainerImage | None = None
    """Container image that the command runs in, with its digest."""
    python: Python | None = None
    """A Python environment, instead of a container."""
    artifacts: limits.ArtifactsLocation | None = None
    """S3 prefix for the files that the command writes to ``$GPU_SPOT_ARTIFACTS``."""
    repository_secret: limits.SecretName | None = None
    """Name of the Secrets Manager secret with the token of a private repository."""
    submodules: bool = False
    """Whether Git submodules are fetched."""
    prepare: Prepare | None = None
    """Preparation of the dataset, once, before any GPU instance starts. The data volume is created from its
    snapshot."""
    matrix: matrices.Matrix | None = None
    """Values by environment variable. Each combination is an experiment. Up to 20 experiments are a job each;
    more share one group, whose instances run one after another."""
    nodes: NodesSetting = TrainingNodes()
    """How many nodes train together, 1 by default. On instances the script calls
    ``spot_training.torch.init()``, and its checkpoints are on EFS."""
    deadline: str | None = None
    """Date and time by which the job should finish, in ISO 8601 with a time zone. On-Demand capacity is
    bought as needed to meet it. The command must report its steps in the file ``$GPU_SPOT_TELL``."""
    schedule: Schedule | None = None
    """When the job runs. Each time is a run of its own, with its own checkpoints below
    ``checkpoints/<job>/<time>``; between runs the group is at 0. Default: the revision is the only run."""
    deadline_after: Duration | None = None
    """Deadline of each run of a ``schedule`` after its begin, as an ISO 8601 duration such as ``PT6H``; it is
    kept as a ``deadline`` is."""
    expected_hours: Annotated[float, Field(ge=0.1, le=8760), FROM_TEXT] | None = None
    """Hours that a run is expected to take, of which a forecast counts the cost. Default: a whole month, or
    ``deadlineAfter``."""
    budget: Annotated[float, Field(ge=0.01, le=1_000_000), FROM_TEXT] | None = None
    """Maximum cost of the run's instances in US dollars. When it is spent, the job saves a checkpoint and
    is held. Each experiment of a ``matrix`` has its own budget."""

    @property
    def access_point(self) -> str | None:
        """The access point of the file system with the checkpoints; None: they are on the data volume."""
        return None if self.checkpoints == ON_THE_VOLUME else self.checkpoints

    @property
    def deadline_at(self) -> float:
        """The deadline in epoch seconds, 0 without one."""
        return 0.0 if self.deadline is None else _parse_date_time(self.deadline).timestamp()

    @field_validator("schedule")
    @classmethod
    def _one_job(cls, schedule: Schedule | None, info: ValidationInfo) -> Schedule | None:
        for key, instead in (
            ("matrix", "write an entry for each experiment"),
            ("capacity_block", "remove one of them, because a block has its own dates"),
            ("deadline", "use deadlineAfter, a deadline of each run"),
        ):
            if schedule is not None and info.data.get(key) is not None:
                raise ValueError(f"does not work with {cls.model_fields[key].alias or key}; {instead}")
        return schedule

    @field_validator("deadline_after")
    @classmethod
    def _of_a_run(cls, duration: str | None, info: ValidationInfo) -> str | None:
        if duration is not None and info.data.get("schedule", duration) is None:  # not if it is invalid
            raise ValueError("needs schedule; without one use deadline, a date and time")
        return duration

    @field_validator("deadline", "deadline_after")
    @classmethod
    def _deadline_can_be_met(cls, deadline: str | None, info: ValidationInfo) -> str | None:
        if deadline is None:
            return None
        if info.field_name == "deadline":
            _parse_date_time(deadline)
        if info.data.get("capacity_block") is not None:
            raise ValueError("is set with capacityBlock, which has its own dates; remove one of them")
        if "capacity" not in info.data:
            return deadline
        capacity: Capacity = info.data["capacity"]
        fallback = capacity.fallback
        if not fallback.enabled:
            raise ValueError("needs fallback.enabled true, because meeting it may take On-Demand capacity")
        defaults = {"shortageCost": SHORTAGE_COST}
        if fallback.policy != policies.DEFAULT or fallback.policy_parameters != defaults:
            raise ValueError(
                "is set together with fallback.policy or fallback.policyParameters; remove these, "
                "because a deadline is a policy"
            )
        if capacity.on_demand_base or capacity.spot_percentage != 100:
            raise ValueError("needs capacity.onDemandBase 0 and capacity.spotPercentage 100")
        return deadline

    @field_validator("budget")
    @classmethod
    def _has_hourly_prices(cls, budget: float | None, info: ValidationInfo) -> float | None:
        if budget is None:
            return None
        if info.data.get("capacity_block") is not None:
            raise ValueError("is set with capacityBlock, which is paid in advance; remove one of them")
        region = str((info.context or {}).get("region", ""))
        types = info.data["capacity"].types if "capacity" in info.data else ()
        if unknown := sorted(kind for kind in types if price(kind, region) is None):
            raise ValueError(
                f"needs hourly prices, and {', '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} "
                f"none in {region}; use types with a price, or read AWS's prices with make prices"
            )
        return budget

    @field_validator("capacity")
    @classmethod
    def _one_instance(cls, capacity: Capacity) -> Capacity:
        if capacity.unit != "instances":
            raise ValueError(
                f"unit must be 'instances' for a job, which runs on whole instances, not {capacity.unit!r}"
            )
        if not capacity.is_managed:
            raise ValueError("fleetType must be 'maintain' for a job: 'request' does not replace instances")
        fallback = capacity.fallback
        if fallback.policy == policies.DEFAULT and not fallback.policy_parameters:
            fallback = fallback.model_copy(update={"policy_parameters": {"shortageCost": SHORTAGE_COST}})
        return capacity.model_copy(update={"fallback": fallback})

    @property
    def has_deadline(self) -> bool:
        """Whether the job, or each of its runs, has a deadline."""
        return self.deadline is not None or self.deadline_after is not None

    @property
    def shares_group(self) -> bool:
        """Whether the experiments share one group, whose instances run one after another."""
        return self.matrix is not None and matrices.count(self.matrix) > matrices.MAX_SEPARATE_EXPERIMENTS

    @property
    def has_nodes(self) -> bool:
        """Whether several instances run the job together."""
        return self.nodes.max > 1 and self.runs_on == "instances"

    @property
    def has_volume(self) -> bool:
        """Whether the job has a data volume."""
        return self.volume_gib > 0

    @property
    def fallback_capacity(self) -> Capacity:
        """Capacity of the fallback group; with a Capacity Block, of the block's instance type."""
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
                "is the job's fallback; remove fallback.enabled: false, fallback.reservation and "
                f"fallback.warmInstances ({block.reservation})"
            )
        if capacity.on_demand_base:
            raise ValueError(
                f"needs onDemandBase 0, because the base runs outside the block ({block.reservation})"
            )
        catalogue.check_mix((*capacity.types, block.instance_type), capacity.ami, capacity.amis)
        return block

    @field_validator("dataset")
    @classmethod
    def _not_over_datasets(cls, dataset: str | None, info: ValidationInfo) -> str | None:
        if dataset is not None:
            check_mount_paths(
                [volume.path for volume in info.data.get("datasets", ())], [f"{DATA_DIR}/datasets"]
            )
        return dataset

    @field_validator("image")
    @classmethod
    def _container_on_nvidia(cls, image: str | None, info: ValidationInfo) -> str | None:
        if image is not None and "capacity" in info.data and not info.data["capacity"].is_nvidia:
            raise ValueError(
                "needs NVIDIA GPUs; choose instance types with them, or run the command without a container"
            )
        return image

    @field_validator("python")
    @classmethod
    def _instead_of_an_image(cls, python: Python | None, info: ValidationInfo) -> Python | None:
        if python is not None and info.data.get("image") is not None:
            raise ValueError("is set together with image, which has its own Python; remove one of them")
        return python

    @field_validator("prepare")
    @classmethod
    def _fits_the_job(cls, prepare: Prepare | None, info: ValidationInfo) -> Prepare | None:
        data = info.data
        if prepare is None or not {"name", "capacity", "volume_gib", "environment"} <= data.keys():
            return prepare
        required = data["capacity"].architecture
        if (architecture := cpu_types.architecture(prepare.instance_type)) != required:
            raise ValueError(
                f"instanceType must be {required}, the architecture of the job's machine image; "
                f"{prepare.instance_type!r} is {architecture}"
            )
        if prepare.size_gib is not None and prepare.size_gib > data["volume_gib"]:
            raise ValueError(
                f"sizeGiB must be at most the job's volumeGiB ({data['volume_gib']}), not {prepare.size_gib}"
            )
        if len(name := prepare.name or data["name"]) > MAX_DATASET_NAME_LENGTH:
            raise ValueError(
                f"name must have at most {MAX_DATASET_NAME_LENGTH} characters; {name!r} has {len(name)}"
            )
        check_text(prepare.command, {**data["environment"], **data.get("secrets", {})})
        return prepare

    @field_validator("matrix")
    @classmethod
    def _valid_experiments(
        cls, matrix: matrices.Matrix | None, info: ValidationInfo
    ) -> matrices.Matrix | None:
        if matrix is None or not {"name", "environment", "capacity_block"} <= info.data.keys():
            return matrix
        check_names(matrix)
        variables = {**info.data["environment"], **info.data.get("secrets", {})}
        matrices.check(matrix, info.data["name"], variables)
        if info.data["capacity_block"] is not None:
            raise ValueError("is set with capacityBlock, which is for one job; remove one of them")
        return matrix

    @model_validator(mode="after")
    def _target_matches_experiments(self) -> Training:
        if self.has_nodes:
            self._check_nodes()
        elif self.shares_group:
            self._check_shared()
        elif self.capacity.target != 1:
            raise WrongKeyError(
                ("capacity", "target"),
                f"must be 1, not {self.capacity.target}: a job and its volume are on one instance at "
                "a time. More instances need nodes, or a matrix of more than "
                f"{matrices.MAX_SEPARATE_EXPERIMENTS} experiments",
            )
        return self

    def _check_nodes(self) -> None:
        """Raise ``ValueError`` for settings that a job of several instances does not support."""
        nodes = f"nodes {self.nodes} on instances"
        if self.capacity.target != self.nodes.max:
            raise WrongKeyError(
                ("capacity", "target"), f"must be nodes.max ({self.nodes.max}), not {self.capacity.target}"
            )
        if self.has_volume:
            raise ValueError(
                f"{nodes} need volumeGiB 0, not {self.volume_gib}: EBS attaches a volume to one "
                "instance; keep checkpoints on EFS"
            )
        for field, alternative in _ON_ONE_INSTANCE.items():
            if getattr(self, field) is not None:
                key = type(self).model_fields[field].alias or field
                raise ValueError(f"{nodes} do not work with {key}; {alternative}")
        if len(self.name) > MAX_NAME_LENGTH:
            raise ValueError(
                f"{nodes} need a job name of at most {MAX_NAME_LENGTH} characters, because each "
                f"node's name adds to it; {self.name!r} is too long"
            )
        try:
            self.nodes.check_types(self.capacity)
        except ValueError as error:
            raise WrongKeyError(("nodes",), str(error)) from None

    def _check_shared(self) -> None:
        """Raise ``ValueError`` for settings that experiments of a shared group do not support."""
        assert self.matrix is not None
        shared = f"the {matrices.count(self.matrix)} experiments of matrix share one group"
        values = {variable: " ".join(values) for variable, values in self.matrix.items()}
        if self.has_volume:
            raise ValueError(f"{shared} and need volumeGiB 0, not {self.volume_gib}; keep checkpoints on EFS")
        for key in ("deadline", "budget"):
            if getattr(self, key) is not None:
                raise ValueError(
                    f"{shared} and do not work with {key}; use at most {matrices.MAX_SEPARATE_EXPERIMENTS} "
                    "experiments, which have a group each"
                )
        try:
            check_text(self.command, {**self.environment, **self.secrets, **values})
        except ValueError as error:
            raise ValueError(f"{shared}: {error}") from None

    @model_validator(mode="after")
    def _volume_settings_need_a_volume(self) -> Training:
        if self.has_volume:
            return self
        for field in _VOLUME_FIELDS:
            if field in self.model_fields_set and getattr(self, field) is not None:
                key = type(self).model_fields[field].alias
                raise ValueError(
                    f"{key} needs a data volume, and volumeGiB is 0; set volumeGiB, or use datasets[]"
                )
        if self.access_point is None:
            raise ValueError(
                f"checkpoints must be an access point of storage.fileSystem, not {ON_THE_VOLUME!r}, "
                "because volumeGiB is 0"
            )
        return self

    @model_validator(mode="after")
    def _volume_holds_the_dataset(self) -> Training:
        if self.dataset_gib is not None and self.has_volume and self.volume_gib <= self.dataset_gib:
            raise WrongKeyError(
                ("volumeGiB",),
                f"must be more than {self.dataset_gib}, the size of the dataset in GiB, not "
                f"{self.volume_gib}",
            )
        return self

    @model_validator(mode="after")
    def _supported_by_platform(self) -> Training:
        if self.runs_on == "kubernetes":
            self._check_pod()
        return self

    def _check_pod(self) -> None:
        """Raise ``ValueError`` for settings that jobs on Kubernetes do not support."""
        if self.image is None:
            raise unsupported_error("without an image", "set image")
        for field, alternative in _ON_INSTANCES.items():
            if getattr(self, field) is not None:
                raise unsupported_error(f"with {type(self).model_fields[field].alias or field}", alternative)
        if self.has_volume:
            raise unsupported_error(
                f"with volumeGiB {self.volume_gib}",
                "set it to 0 (checkpoints on the file system, datasets[] from snapshots)",
            )
        if "stalled_after_minutes" in self.model_fields_set and self.stalled_after_minutes:
            setting = f"with stalledAfterMinutes {self.stalled_after_minutes}"
            raise unsupported_error(setting, "set it to 0 (the check needs the node agent)")
        if self.nodes.max > 1 and self.matrix is not None:
            raise unsupported_error(f"with nodes {self.nodes} and matrix", "remove one of them")
        if self.nodes.zone is not None:
            raise unsupported_error(f"with nodes.zone {self.nodes.zone}", "remove it (Karpenter chooses)")
        for key in self.nodes.between_instances:
            raise unsupported_error(f"with nodes.{key}", "remove it, or run the job on instances")
        check_capacity(self.capacity)


def _parse_date_time(text: str) -> datetime:
    """Return an ISO 8601 date and time with a time zone; raise ``ValueError`` if it is none."""
    try:
        date_time = datetime.fromisoformat(text)
    except ValueError:
        date_time = None
    if date_time is None or date_time.tzinfo is None or date_time.timestamp() <= 0:
        raise ValueError(
            f"must be a date and time with a time zone, such as '2027-03-01T18:00:00+01:00', not {text!r}"
        )
    return date_time
