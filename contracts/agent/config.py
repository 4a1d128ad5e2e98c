"""Configuration of the node agent, ``/etc/gpu-spot/agent.json``, written by the user data.

The bounds of single values are part of their types, see ``limits``; checks here cover several values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from contracts import codec, limits
from contracts.agent.names import (
    DATA_DIR,
    UNIT_PROXY,
    UNIT_RUN,
    UNIT_TENANT_SUPERVISOR,
    UNIT_WORK,
    DatasetDevice,
)
from contracts.agent.nodes import JobNodes
from contracts.jobs.run import run_id
from contracts.limits import Above, Matches, Within
from contracts.stored import Stored

GroupRoleName = Literal["primary", "fallback"]


@dataclass(frozen=True)
class Hooks:
    """Lifecycle hooks of this instance's Auto Scaling group; omitted for a Spot Fleet."""

    auto_scaling_group: str = ""
    """Name of the group; empty: read from the instance's ``aws:autoscaling:groupName`` tag."""
    launch: str = ""
    terminate: str = ""
    terminate_seconds: Annotated[float, Within(30, 7200)] = 120.0
    """Timeout of the terminating hook, the time available at scale-in. The bounds are those of AWS."""


@dataclass(frozen=True)
class Volume:
    """Data volume of a training job: an EBS volume that moves with the job between zones."""

    size_gib: limits.VolumeGib = 100
    throughput_mib: limits.ThroughputMib = 125
    dataset: limits.DatasetLocation | None = None
    """Copied to ``/dltraining/datasets`` when the volume is created."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """Initialization rate of a volume created from a snapshot; omitted: blocks load on first read."""
    snapshot_every_minutes: limits.SnapshotIntervalMinutes = 30
    """Interval between snapshots during training; 0: only when the volume moves."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """Encryption key; omitted: the account's default key for EBS."""
    wait_seconds: float = 900.0
    """Timeout of one wait: for the volume of a terminating instance, a snapshot, an attachment."""


@dataclass(frozen=True)
class EfsMount:
    """A mount of an EFS file system through an access point (``fsap-…``) at ``path``."""

    file_system: Annotated[str, Matches(r"fs-[0-9a-f]+")]
    access_point: Annotated[str, Matches(r"fsap-[0-9a-f]+")]
    path: Annotated[str, Matches(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")]


@dataclass(frozen=True)
class Dataset:
    """A volume that the launch template created from ``snapshot``, mounted read-only at ``path``."""

    snapshot: limits.SnapshotId
    device: DatasetDevice
    """Device name in the launch template."""
    path: limits.DatasetPath


@dataclass(frozen=True)
class Python:
    """A virtual environment of the job: Python version and requirements file in the repository."""

    version: limits.PythonVersion
    requirements: limits.RequirementsFile


@dataclass(frozen=True)
class JobPrices:
    """List prices in US dollars as of the last `pulumi up`; a price that is missing is unknown."""

    on_demand: Mapping[str, Annotated[float, Above(0)]] = field(default_factory=dict)
    """An hour of an instance by type: Linux, shared tenancy."""
    efs_write: Annotated[float, Above(0)] | None = None
    """Writing a GiB to EFS with elastic throughput."""
    efs_write_is_assumed: bool = False
    """Whether that is the highest price of any region, because this region's is unknown."""


@dataclass(frozen=True)
class ScheduledRun:
    """The run of a job with a schedule. The agent reads ``parameter`` and fills in ``folder``."""

    parameter: str
    """The parameter with the newest run, see `contracts.jobs.run`."""
    keep: Annotated[int, Within(0, 1000)] = 0
    """Number of runs whose checkpoints are kept, this one included; 0: all."""
    folder: str = ""
    """Directory of the run below the job's; empty in the file: it is not known before the launch."""


@dataclass(frozen=True)
class Training:
    """A training job: its code, its command and the table with its state."""

    job: limits.Name
    job_table: str
    repository: limits.CodeRepository
    revision: limits.Revision
    command: limits.Command
    user: str
    """Unprivileged user that runs the command."""
    finished_parameter: str
    """Parameter set to the run once it is finished; the controller then terminates instances."""
    environment: limits.Environment = field(default_factory=dict)
    secrets: limits.Secrets = field(default_factory=dict)
    """Secret variables by name, see `secret_sources`."""
    shm_gib: limits.SharedMemoryGib | None = None
    """Size of ``/dev/shm`` in a container; omitted: half of the machine's memory."""
    uses_aws: bool = False
    """Whether the command may use the instance's role."""
    max_restarts: limits.MaxRestarts = 5
    """Consecutive failures without a new checkpoint after which the job has failed."""
    stalled_after_minutes: limits.StalledAfterMinutes = 60
    """Minutes without a new checkpoint, output or GPU activity after which the job is stalled."""
    repository_secret: limits.SecretName | None = None
    """Secret in Secrets Manager with the credentials of a private repository: ``TOKEN`` or ``USER:TOKEN``."""
    submodules: bool = False
    """Whether to fetch the repository's submodules, each at its pinned commit."""
    image: limits.ContainerImage | None = None
    """Container image of the command."""
    python: Python | None = None
    """Virtual environment without a container; omitted: the Python of the AMI."""
    artifacts: limits.ArtifactsLocation | None = None
    """S3 location to which ``$GPU_SPOT_ARTIFACTS`` is uploaded."""
    experiments: limits.Experiments = field(default_factory=dict)
    """Values by environment variable. Each combination is an experiment, a separate job with a name derived
    from its values; the group's instances run one experiment after another."""
    nodes: JobNodes | None = None
    """The job runs on several instances at once; omitted: on one."""
    prices: JobPrices = field(default_factory=JobPrices)
    scheduled: ScheduledRun | None = None
    """The job has a schedule, and runs of its own; omitted: the revision is its only run."""

    @property
    def run(self) -> str:
        """Id of the run, as the job table and the parameter ``finished`` have it."""
        return run_id(self.revision, self.scheduled.folder if self.scheduled else "")

    @property
    def folder(self) -> str:
        """Directory of this run below those of checkpoints and artifacts."""
        return f"{self.job}/{self.scheduled.folder}" if self.scheduled else self.job

    def __post_init__(self) -> None:
        """Reject ``image`` with ``python``, and ``nodes`` with what several instances do not share."""
        if self.nodes and (self.experiments or self.image or self.artifacts):
            raise ValueError("nodes cannot be set with experiments, image or artifacts")
        if self.image and self.python:
            raise ValueError("image and python are both set; remove one (an image has its own Python)")


@dataclass(frozen=True)
class Prepared:
    """The dataset (``<name>@<version>``) that a job's volume is created from, and the group that prepares it.

    Instances of ``group`` fill a volume; the volumes of other groups are created from its snapshot.
    """

    dataset: limits.DatasetId
    group: limits.Name
    parameter: str
    """Parameter set to the dataset once its snapshot is complete; the other groups can then start."""


@dataclass(frozen=True)
class Queue:
    """Queue that the workers consume.

    For RabbitMQ, ``secret`` holds the broker's URL, and client and worker declare the queue with
    ``max_deliveries`` and ``max_length``. For SQS, ``url`` is set instead; the stack configures the queue.
    """

    name: limits.QueueName
    secret: limits.SecretName | None = None
    url: limits.SqsUrl | None = None
    max_deliveries: Annotated[limits.MaxDeliveries, Stored("tries")] = 20
    max_length: Annotated[limits.MaxQueueLength, Stored("most")] = 100_000

    def __post_init__(self) -> None:
        """Require either ``secret`` or ``url``."""
        if (self.secret is None) == (self.url is None):
            raise ValueError(
                f"queue {self.name} must have one of secret and url, not {self.secret} and {self.url}"
            )


@dataclass(frozen=True)
class HttpWorkers:
    """HTTP servers that are a service's workers; the one in slot ``n`` listens on ``port + n``."""

    port: limits.WorkerPort
    readiness: limits.HttpPath = "/health"
    """Path that answers with a status of 2xx within ``READINESS_SECONDS`` once the worker is ready."""
    check_port: limits.WorkerPort = 8900
    """Port on which the agent answers the proxies' checks of its workers."""
    is_grpc: bool = False
    """Whether the workers speak gRPC: ready is then a worker that accepts connections."""


@dataclass(frozen=True)
class HttpProxy:
    """HAProxy on this instance, in front of the HTTP workers of the service ``group``."""

    workers: HttpWorkers
    listen_port: limits.WorkerPort = 8080
    health_port: limits.WorkerPort = 8081
    """Port of the load balancer's checks: they are answered also while all connections are in use."""
    max_workers: Annotated[int, Within(1, 1000)] = 16
    """Largest number of workers, those on premises included."""
    max_slots: Annotated[int, Within(1, 128)] = 1
    """Largest number of workers of one instance."""
    concurrency: limits.HttpConcurrency = 16
    """Requests at one worker at once, over all ``proxies``; more wait at the proxy."""
    proxies: Annotated[int, Within(1, 20)] = 2
    idle_timeout_seconds: limits.HttpIdleSeconds = 60
    """Time without a byte after which a request counts as lost."""
    retries: Annotated[int, Within(0, 10)] = 2
    retry_paths: tuple[limits.HttpPath, ...] = ()
    """Prefixes of paths whose requests may be repeated, whatever their method."""
    is_grpc: bool = False
    hosts: tuple[str, ...] = ()
    """Addresses of hosts on premises."""
    retry_after_seconds: Annotated[int, Within(1, 3600)] = 60
    """Sent with a 503 while there is no worker, unless a boot time has been learned."""


@dataclass(frozen=True)
class Service:
    """Workers of a service: ``slots_per_gpu`` processes or containers on each GPU of this instance."""

    slots_per_gpu: limits.SlotsPerGpu = 1
    gpus_per_worker: limits.GpusPerWorker = 1
    """Number of GPUs of each process or container; above 1 ``slots_per_gpu`` is 1."""
    gpus: Annotated[int, Within(0, 16)] = 0
    """Number of non-NVIDIA accelerators; 0: the GPUs that the NVIDIA driver reports."""
    image: limits.ContainerImage | None = None
    """Container image; omitted: ``command`` runs as a process."""
    command: limits.Arguments = ()
    environment: limits.Environment = field(default_factory=dict)
    secrets: limits.Secrets = field(default_factory=dict)
    """Secret variables by name, see `secret_sources`."""
    shm_gib: limits.SharedMemoryGib | None = None
    """Size of ``/dev/shm`` in a container; omitted: half of the machine's memory, divided by its workers."""
    read_only_root: bool = True
    """Whether a container may write to its mounts only."""
    user: str = ""
    """Unprivileged user that runs ``command`` without an image; empty: the agent's user."""
    reports_readiness: Annotated[bool, Stored("saysReady")] = False
    """Whether the worker creates the file ``$GPU_SPOT_READY`` once its model is loaded; if not, it counts as
    ready when it starts."""
    queue: Queue | None = None
    http: HttpWorkers | None = None

    def __post_init__(self) -> None:
        """Require an image or a command, and workers that share GPUs or have several."""
        if not self.image and not self.command:
            raise ValueError("image and command are both empty; set one of them")
        if self.slots_per_gpu > 1 and self.gpus_per_worker > 1:
            raise ValueError("slotsPerGpu and gpusPerWorker are both above 1; one of them must be 1")


@dataclass(frozen=True)
class SharedHost:
    """A host shared by tenants; its name is that of the group.

    The list of tenants is the object ``tenants.codec.key_of`` in ``bucket``; it can change at any time.
    """

    bucket: str
    job_table: str
    """Table of the leases of the tenants' volumes."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """Encryption key of the tenants' volumes; omitted: the account's default key for EBS."""
    list_interval_seconds: Annotated[float, Within(1, 300), Stored("listEverySeconds")] = 5.0
    """Poll interval of the list: 518,400 requests a month, $0.21 (Amazon S3 pricing, us-east-1: $0.0004 per
    1,000 GET requests; one that returns 304 counts)."""


@dataclass(frozen=True)
class Metrics:
    """Sampling of GPU metrics, and the port on which the CloudWatch agent receives them."""

    period_seconds: float = 10.0
    send_every_seconds: float = 60.0
    log_group: str = "/gpu-spot/metrics"
    emf_port: int = 25888


@dataclass(frozen=True)
class Config:
    """Configuration of the node agent, without instance id, zone and GPUs, which the agent detects."""

    region: str
    stack: str
    group: limits.Name
    group_role: Annotated[GroupRoleName, Stored("side")]
    registry_table: str
    drain_seconds: limits.DrainSeconds = 0
    """Seconds before the deadline at which service workers stop receiving requests."""
    heartbeat_seconds: Annotated[float, Within(1, 60)] = 10.0
    poll_seconds: Annotated[float, Within(1, 5)] = 5.0
    """Poll interval for interruption notices (AWS recommends every 5 seconds)."""
    hooks: Hooks | None = None
    volume: Volume | None = None
    efs: tuple[EfsMount, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    training: Training | None = None
    prepared: Prepared | None = None
    service: Service | None = None
    shared_host: SharedHost | None = None
    proxy: HttpProxy | None = None
    metrics: Metrics = field(default_factory=Metrics)
    on_premises: bool = False
    """Whether this machine is an on-premises host, not an EC2 instance."""
    nvidia: bool = True
    """Whether the accelerators are NVIDIA GPUs; NVML supports no others."""

    def __post_init__(self) -> None:
        """Check combinations of keys."""
        if [self.training, self.service, self.shared_host, self.proxy].count(None) != 3:
            raise ValueError("set exactly one of training, service, sharedHost and proxy")
        if self.volume and not self.training:
            raise ValueError("volume needs training, because its lease is part of the job's table item")
        if self.training and self.training.experiments and self.volume:
            raise ValueError("training.experiments cannot be set with volume, which one instance holds")
        if self.training and self.training.nodes and self.volume:
            raise ValueError("training.nodes cannot be set with volume, which one instance holds")
        if self.training and not self.volume and not self.efs:
            raise ValueError("training needs volume or efs, which store its checkpoints")
        if self.on_premises and (not self.service or self.hooks or self.efs or self.datasets):
            raise ValueError("onPremises needs service, and cannot be set with hooks, efs or datasets")
        if self.prepared and not self.volume:
            raise ValueError("prepared needs volume, which is created from its snapshot")
        copied = (f"{DATA_DIR}/datasets",) if self.volume and (self.volume.dataset or self.prepared) else ()
        check_mount_paths([dataset.path for dataset in self.datasets], [*(m.path for m in self.efs), *copied])

    @property
    def dataset_to_prepare(self) -> Prepared | None:
        """The dataset that this instance prepares; ``None`` if it prepares none."""
        return self.prepared if self.prepared and self.prepared.group == self.group else None

    @property
    def checkpoints(self) -> EfsMount | Volume | None:
        """Where a job's checkpoints are: on a file system, or on its volume; ``None`` without a job."""
        return self.efs[0] if self.efs else self.volume

    @property
    def work_unit(self) -> str:
        """The systemd unit of the workload."""
        if self.shared_host:
            return UNIT_TENANT_SUPERVISOR
        if self.proxy:
            return UNIT_PROXY
        return UNIT_RUN if self.training else UNIT_WORK


def check_mount_paths(datasets: Sequence[str], mounts: Sequence[str]) -> None:
    """Raise ``ValueError`` if a dataset's path overlaps that of another dataset or mount."""
    for number, path in enumerate(datasets):
        for mount in (*datasets[:number], *mounts):
            inner, outer = sorted((f"{path}/", f"{mount}/"), key=len, reverse=True)
            if inner.startswith(outer):
                raise ValueError(
                    f"mount path {path} overlaps {mount}; choose paths that do not contain each other"
                )


def parse(text: str) -> Config:
    """Parse the configuration from JSON; raise `ContractError` if it is invalid."""
    return codec.parse_text(Config, text)
