"""The agent's configuration, ``/etc/gpu-spot/agent.json``, written by the boot data.

What one value may be stands in its type, see ``limits``; a check here looks at several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from contracts import codec, limits
from contracts.agent.names import DATA_DIR, UNIT_LANDLORD, UNIT_RUN, UNIT_WORK, DatasetDevice
from contracts.limits import Matches, Within

GroupSide = Literal["primary", "fallback"]


@dataclass(frozen=True)
class Hooks:
    """The lifecycle hooks of this instance's Auto Scaling group; left out on a Spot Fleet."""

    auto_scaling_group: str = ""
    """Its name; empty: the one in the tag that Auto Scaling gives to each instance."""
    launch: str = ""
    terminate: str = ""
    terminate_seconds: Annotated[float, Within(30, 7200)] = 120.0
    """The terminating hook's timeout: what a scale-in leaves us. The bounds are AWS's."""


@dataclass(frozen=True)
class Volume:
    """The data volume of a training job, an EBS volume that follows the job from zone to zone."""

    size_gib: limits.VolumeGib = 100
    throughput_mib: limits.ThroughputMib = 125
    dataset: limits.DatasetFolder | None = None
    """Copied to ``/dltraining/datasets`` when the volume is new."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """Of a copy of the volume; left out, blocks are fetched when they are read."""
    snapshot_every_minutes: limits.SnapshotEveryMinutes = 30
    """Between two snapshots that are taken while the job trains; 0: only when the volume moves."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """Encrypts it; left out, the key that the account has for EBS."""
    wait_seconds: float = 900.0
    """How long one wait may take: for a dying instance's volume, a snapshot, an attachment."""


@dataclass(frozen=True)
class EfsMount:
    """One mount of a file system through an access point (``fsap-…``) at ``path``."""

    file_system: Annotated[str, Matches(r"fs-[0-9a-f]+")]
    access_point: Annotated[str, Matches(r"fsap-[0-9a-f]+")]
    path: Annotated[str, Matches(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")]


@dataclass(frozen=True)
class Dataset:
    """A volume that the launch made from ``snapshot`` for this instance, mounted read-only at ``path``."""

    snapshot: limits.SnapshotId
    device: DatasetDevice
    """The name that the launch template gives it."""
    path: limits.DatasetPath


@dataclass(frozen=True)
class Python:
    """A Python of the job's own: which one, and a file of the repository that says what is in it."""

    version: limits.PythonVersion
    requirements: limits.RequirementsFile


@dataclass(frozen=True)
class Training:
    """A training job: what is fetched, what is run, and where its state stands."""

    job: limits.Name
    job_table: str
    repository: limits.CodeRepository
    revision: limits.Revision
    command: limits.Command
    user: str
    """The unprivileged user that the command runs as."""
    finished_parameter: str
    """Where this revision is named once it has ended, so that the controller lets all go."""
    environment: limits.Environment = field(default_factory=dict)
    max_restarts: limits.MaxRestarts = 5
    """Failures in a row without a new checkpoint after which the job counts as failed."""
    stalled_after_minutes: limits.StalledAfterMinutes = 60
    """Without a new checkpoint, output or work on a GPU, after which the job counts as hanging."""
    repository_secret: limits.SecretName | None = None
    """The Secrets Manager secret that opens a private repository: ``TOKEN`` or ``USER:TOKEN``."""
    submodules: bool = False
    """Fetch the repository's submodules, too, each at its pinned commit."""
    image: limits.ContainerImage | None = None
    """The container image that the command runs in."""
    python: Python | None = None
    """What it runs with, outside of containers; left out, the machine image's own."""
    artifacts: limits.ArtifactsFolder | None = None
    """Where ``$GPU_SPOT_ARTIFACTS`` goes."""
    experiments: limits.Experiments = field(default_factory=dict)
    """Values by environment variable. Each combination is an experiment, a job of its own by a name that
    follows from them; the group's instances run one after another."""

    def __post_init__(self) -> None:
        """Check that there is one place to run in."""
        if self.image and self.python:
            raise ValueError("image beside python, allowed: one of them (an image brings its own)")


@dataclass(frozen=True)
class Prepared:
    """The ``dataset`` (``<name>@<version>``) that a job's volume is made from, and which ``group`` makes it.

    The group's own instances prepare it: they fill a volume, whose snapshot the others start from.
    """

    dataset: limits.DatasetId
    group: limits.Name
    parameter: str
    """Where the dataset is named once a snapshot of it counts, so that the controller starts the others."""


@dataclass(frozen=True)
class Queue:
    """The queue that the workers read: the ``secret`` with its broker's URL, and how both ends declare it.

    One of SQS has ``url`` in the secret's place, and knows itself how it is declared.
    """

    name: limits.QueueName
    secret: limits.SecretName | None = None
    url: limits.SqsUrl | None = None
    tries: limits.Tries = 20
    most: limits.MostWaiting = 100_000

    def __post_init__(self) -> None:
        """Check that it can be found, one way."""
        if (self.secret is None) == (self.url is None):
            raise ValueError(f"queue {self.name} has secret {self.secret} and url {self.url}; one is needed")


@dataclass(frozen=True)
class Service:
    """Workers that serve a queue: ``slots_per_gpu`` processes or containers on each GPU of this instance."""

    slots_per_gpu: limits.SlotsPerGpu = 1
    gpus: Annotated[int, Within(0, 16)] = 0
    """Accelerators of other makers; 0: as many GPUs as the NVIDIA driver shows."""
    image: limits.ContainerImage | None = None
    """A container image; left out, ``command`` runs as a process."""
    command: limits.Arguments = ()
    environment: limits.Environment = field(default_factory=dict)
    user: str = ""
    """The unprivileged user that ``command`` runs as where there is no image; empty: the agent's own."""
    says_ready: bool = False
    """The worker creates the file ``$GPU_SPOT_READY`` when its model is loaded.

    Else it counts from its start.
    """
    queue: Queue | None = None

    def __post_init__(self) -> None:
        """Check that there is something to run."""
        if not self.image and not self.command:
            raise ValueError("image and command are both empty; one of them is needed")


@dataclass(frozen=True)
class SharedHost:
    """A host that is divided between tenants; its name is the group's.

    Their list lies in ``bucket`` under ``tenants.codec.key_of``: it changes while instances live.
    """

    bucket: str
    job_table: str
    """Holds the leases of the tenants' volumes, as of jobs'."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """Encrypts their volumes; left out, the key that the account has for EBS."""
    list_every_seconds: Annotated[float, Within(1, 300)] = 10.0
    """Between two looks at the list."""


@dataclass(frozen=True)
class Metrics:
    """What the metric agent sends and where the CloudWatch agent listens for it."""

    period_seconds: float = 10.0
    send_every_seconds: float = 60.0
    log_group: str = "/gpu-spot/metrics"
    emf_port: int = 25888


@dataclass(frozen=True)
class Config:
    """All that the agent is told; what it can find out by itself (ids, zone, GPUs) is not in here."""

    region: str
    stack: str
    group: limits.Name
    side: GroupSide
    registry_table: str
    drain_seconds: limits.DrainSeconds = 0
    """Seconds before the deadline at which service workers take no more work."""
    heartbeat_seconds: Annotated[float, Within(1, 60)] = 10.0
    poll_seconds: Annotated[float, Within(1, 5)] = 5.0
    """Between two questions for a notice (AWS: every 5 seconds)."""
    hooks: Hooks | None = None
    volume: Volume | None = None
    efs: tuple[EfsMount, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    training: Training | None = None
    prepared: Prepared | None = None
    service: Service | None = None
    shared_host: SharedHost | None = None
    metrics: Metrics = field(default_factory=Metrics)
    on_premises: bool = False
    """Whether this machine is no instance of AWS's, but a host of one's own that runs the same workers."""
    nvidia: bool = True
    """Whether the accelerators are NVIDIA's: NVML knows no others."""

    def __post_init__(self) -> None:
        """Check what no single key can tell."""
        if [self.training, self.service, self.shared_host].count(None) != 2:
            raise ValueError("exactly one of training, service and sharedHost is needed")
        if self.volume and not self.training:
            raise ValueError("volume: allowed with training only (its lease stands in the job's table item)")
        if self.training and self.training.experiments and self.volume:
            raise ValueError("training.experiments: allowed without a volume, which is one instance's")
        if self.training and not self.volume and not self.efs:
            raise ValueError("training: allowed with a volume, or with efs, where its checkpoints lie")
        if self.on_premises and (not self.service or self.hooks or self.efs or self.datasets):
            raise ValueError("onPremises: allowed with service only, without hooks, efs and datasets")
        if self.prepared and not self.volume:
            raise ValueError("prepared: allowed with a volume only, which is made from its snapshot")
        copied = (f"{DATA_DIR}/datasets",) if self.volume and (self.volume.dataset or self.prepared) else ()
        check_places([dataset.path for dataset in self.datasets], [*(m.path for m in self.efs), *copied])

    @property
    def prepares(self) -> Prepared | None:
        """The dataset that this very instance is there to make, if it is."""
        return self.prepared if self.prepared and self.prepared.group == self.group else None

    @property
    def work_unit(self) -> str:
        """The systemd unit that does the work."""
        if self.shared_host:
            return UNIT_LANDLORD
        return UNIT_RUN if self.training else UNIT_WORK


def check_places(datasets: Sequence[str], others: Sequence[str]) -> None:
    """Raise ``ValueError`` where a dataset's path is, holds or lies in that of another dataset or mount."""
    for number, path in enumerate(datasets):
        for other in (*datasets[:number], *others):
            inner, outer = sorted((f"{path}/", f"{other}/"), key=len, reverse=True)
            if inner.startswith(outer):
                raise ValueError(f"{path} and {other} are in one place, allowed: places side by side")


def parse(text: str) -> Config:
    """Parse the configuration from JSON.

    Raises `ContractError` that names the key, the value and what is allowed.
    """
    return codec.parse_text(Config, text)
