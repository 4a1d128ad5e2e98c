"""The agent's configuration, ``/etc/gpu-spot/agent.json``, written by the boot data."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from userdata.agent.config import strict
from userdata.agent.config.names import DATA_DIR, DATASET_DEVICES, UNIT_RUN, UNIT_WORK
from userdata.agent.machine.errors import ConfigError
from userdata.agent.work import containers

_JOB = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_REVISION = re.compile(r"[0-9a-f]{40}")
_INITIALIZATION_RATES = range(100, 301)
_SNAPSHOT = re.compile(r"snap-[0-9a-f]{8,17}")

DATASET_PATH: Final = r"/(dltraining/datasets|data|mnt|srv)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+"
"""Where datasets may be mounted: below places that nobody else uses, never over a part of the system."""


@dataclass(frozen=True)
class Hooks:
    """The lifecycle hooks of this instance's Auto Scaling group; left out on a Spot Fleet."""

    auto_scaling_group: str = ""
    """Its name; empty: the one in the tag that Auto Scaling gives to each instance."""
    launch: str = ""
    terminate: str = ""
    terminate_seconds: float = 120.0
    """The terminating hook's timeout, in seconds: what a scale-in leaves us (AWS allows 30–7200)."""

    def __post_init__(self) -> None:
        """Check the bounds that AWS sets."""
        if not 30 <= self.terminate_seconds <= 7200:
            raise ValueError(f"terminateSeconds: {self.terminate_seconds}; allowed: 30 to 7200 seconds")


@dataclass(frozen=True)
class Volume:
    """The data volume of a training job, an EBS volume that follows the job from zone to zone."""

    size_gib: int = 100
    throughput_mib: int = 125
    """gp3 throughput in MiB/s: 125 is free, 750 the most that its free 3,000 IOPS allow (0.25 MiB/s each)."""
    dataset: str = ""
    """``s3://bucket/prefix/`` that is copied to ``/dltraining/datasets`` when the volume is new."""
    initialization_rate_mib: int = 0
    """MiB/s at which AWS fetches a copy's blocks ahead of reads: 100 to 300, or 0 to fetch them when read."""
    wait_seconds: float = 900.0
    """How long one wait may take: for a dying instance's volume, a snapshot, an attachment."""

    def __post_init__(self) -> None:
        """Check the bounds that AWS sets."""
        if not 1 <= self.size_gib <= 16384:
            raise ValueError(f"sizeGib: {self.size_gib}; allowed: 1 to 16384")
        if not 125 <= self.throughput_mib <= 750:
            raise ValueError(f"throughputMib: {self.throughput_mib}; allowed: 125 to 750")
        if self.initialization_rate_mib and self.initialization_rate_mib not in _INITIALIZATION_RATES:
            raise ValueError(f"initializationRateMib: {self.initialization_rate_mib}; allowed: 0, 100 to 300")
        if self.dataset and not re.fullmatch(r"s3://[a-z0-9.-]{3,63}/.*", self.dataset):
            raise ValueError(f"dataset: {self.dataset!r}; allowed: s3://bucket/prefix/")


@dataclass(frozen=True)
class EfsMount:
    """One mount of a file system through an access point (``fsap-…``) at ``path``."""

    file_system: str
    access_point: str
    path: str

    def __post_init__(self) -> None:
        """Check the shape of ids and path."""
        if not re.fullmatch(r"fs-[0-9a-f]+", self.file_system):
            raise ValueError(f"fileSystem: {self.file_system!r}; allowed: fs-…")
        if not re.fullmatch(r"fsap-[0-9a-f]+", self.access_point):
            raise ValueError(f"accessPoint: {self.access_point!r}; allowed: fsap-…")
        if not self.path.startswith("/") or ".." in self.path.split("/"):
            raise ValueError(f"path: {self.path!r}; allowed: an absolute path")


@dataclass(frozen=True)
class Dataset:
    """A volume that the launch made from ``snapshot`` for this instance, mounted read-only at ``path``."""

    snapshot: str
    device: str
    """The name that the launch template gives it, one of `DATASET_DEVICES`."""
    path: str

    def __post_init__(self) -> None:
        """Check the shape of id, device and path."""
        if not _SNAPSHOT.fullmatch(self.snapshot):
            raise ValueError(f"snapshot: {self.snapshot!r}; allowed: snap-…")
        if self.device not in DATASET_DEVICES:
            raise ValueError(f"device: {self.device!r}; allowed: {', '.join(DATASET_DEVICES)}")
        if not re.fullmatch(DATASET_PATH, self.path):
            raise ValueError(f"path: {self.path!r}; allowed: what matches {DATASET_PATH}")


@dataclass(frozen=True)
class Training:
    """A training job: what is fetched, what is run, and where its state stands."""

    job: str
    job_table: str
    repository: str
    revision: str
    """A full commit id: a branch would make two runs of one job two programs."""
    command: tuple[str, ...]
    user: str
    """The unprivileged user that the command runs as."""
    target_parameter: str
    """The group's target in Parameter Store.

    Set to 0 when the job is done, and the controller lets all go.
    """
    environment: tuple[str, ...] = ()
    max_restarts: int = 5
    """Failures in a row without a new checkpoint after which the job counts as failed."""

    def __post_init__(self) -> None:
        """Check names that become paths, keys or arguments."""
        if not _JOB.fullmatch(self.job):
            raise ValueError(f"job: {self.job!r}; allowed: lower-case letters, digits and '-', 63 at most")
        if not _REVISION.fullmatch(self.revision):
            raise ValueError(f"revision: {self.revision!r}; allowed: a full commit id of 40 hex digits")
        if not self.command:
            raise ValueError("command: empty; allowed: a program and its arguments")
        if bad := [e for e in self.environment if "=" not in e]:
            raise ValueError(f"environment: {bad[0]!r}; allowed: NAME=value")


@dataclass(frozen=True)
class Service:
    """Workers that serve a queue: ``slots`` processes or containers on this instance."""

    slots_per_gpu: int = 1
    gpus: int = 0
    """Accelerators of other makers; 0: as many GPUs as the NVIDIA driver shows."""
    image: str = ""
    """A container image pinned by digest; empty: ``command`` runs as a process."""
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    user: str = ""
    """The unprivileged user that ``command`` runs as where there is no image; empty: the agent's own."""
    says_ready: bool = False
    """The worker creates the file ``$GPU_SPOT_READY`` when its model is loaded.

    Else it counts from its start.
    """

    def __post_init__(self) -> None:
        """Check that there is something to run."""
        if not 1 <= self.slots_per_gpu <= 64:
            raise ValueError(f"slotsPerGpu: {self.slots_per_gpu}; allowed: 1 to 64")
        if not 0 <= self.gpus <= 16:
            raise ValueError(f"gpus: {self.gpus}; allowed: 0 to 16")
        if not self.image and not self.command:
            raise ValueError("image and command are both empty; one of them is needed")
        if self.image and not containers.IMAGE.fullmatch(self.image):
            raise ValueError(f"image: {self.image!r}; allowed: repository@sha256:… (a tag can be moved)")


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
    group: str
    side: Literal["primary", "fallback"]
    registry_table: str
    drain_seconds: float
    """Seconds before the deadline at which service workers take no more work."""
    heartbeat_seconds: float = 10.0
    poll_seconds: float = 5.0
    hooks: Hooks | None = None
    volume: Volume | None = None
    efs: tuple[EfsMount, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    training: Training | None = None
    service: Service | None = None
    metrics: Metrics = field(default_factory=Metrics)
    nvidia: bool = True
    """Whether the accelerators are NVIDIA's: NVML knows no others."""

    def __post_init__(self) -> None:
        """Check what no single key can tell."""
        if (self.training is None) == (self.service is None):
            raise ValueError("exactly one of training and service is needed")
        if self.volume and not self.training:
            raise ValueError("volume: allowed with training only (its lease stands in the job's table item)")
        copied = (f"{DATA_DIR}/datasets",) if self.volume and self.volume.dataset else ()
        check_places([dataset.path for dataset in self.datasets], [*(m.path for m in self.efs), *copied])
        if not 0 <= self.drain_seconds <= 110:
            raise ValueError(
                f"drainSeconds: {self.drain_seconds}; allowed: 0 to 110 (a notice has 120 seconds)"
            )
        if not 1 <= self.poll_seconds <= 5:
            raise ValueError(f"pollSeconds: {self.poll_seconds}; allowed: 1 to 5 (AWS: poll every 5 seconds)")
        if not 1 <= self.heartbeat_seconds <= 60:
            raise ValueError(f"heartbeatSeconds: {self.heartbeat_seconds}; allowed: 1 to 60")

    @property
    def work_unit(self) -> str:
        """The systemd unit that does the work."""
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

    Raises `ConfigError` that names the key, the value and what is allowed.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"configuration is no JSON: {error}") from None
    return strict.parse(Config, data)


def load(path: Path) -> Config:
    """Read and parse the file at ``path``."""
    try:
        return parse(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
