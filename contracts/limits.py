"""Bounds of single values, shared by the stack file's schema and the agent's configuration.

A bound is metadata of a type: ``Annotated[int, Within(0, 110)]``. The agent's parser calls ``allows``;
pydantic, which is not installed on instances, calls ``__get_pydantic_core_schema__``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Bound(Protocol):
    """A constraint on one value; ``str()`` describes what is allowed."""

    def allows(self, value: Any) -> bool:
        """Return whether ``value``, which has the right type, is allowed."""
        ...

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return pydantic's core schema of the bounded type."""
        ...


@dataclass(frozen=True)
class Within:
    """A number from ``minimum`` to ``maximum``, both inclusive."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"from {self.minimum} to {self.maximum}"

    def allows(self, value: float) -> bool:
        """See ``Bound``."""
        return self.minimum <= value <= self.maximum

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "ge": self.minimum, "le": self.maximum}


@dataclass(frozen=True)
class AtLeast:
    """A number that is at least ``minimum``."""

    minimum: int

    def __str__(self) -> str:
        return f"{self.minimum} or more"

    def allows(self, value: float) -> bool:
        """See ``Bound``."""
        return self.minimum <= value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "ge": self.minimum}


@dataclass(frozen=True)
class Above:
    """A number above ``limit``."""

    limit: int

    def __str__(self) -> str:
        return f"above {self.limit}"

    def allows(self, value: float) -> bool:
        """See ``Bound``."""
        return self.limit < value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "gt": self.limit}


@dataclass(frozen=True)
class Length:
    """A string or list of ``minimum`` to ``maximum`` characters or elements, both inclusive."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum} long"

    def allows(self, value: str | tuple[object, ...]) -> bool:
        """See ``Bound``."""
        return self.minimum <= len(value) <= self.maximum

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "min_length": self.minimum, "max_length": self.maximum}


@dataclass(frozen=True)
class Matches:
    """A string that fully matches ``pattern``; enclose alternatives in parentheses.

    Python's and Rust's engines both read the pattern: no look-around, no back-references.
    """

    pattern: str

    def __str__(self) -> str:
        return f"text that matches ^{self.pattern}$"

    def allows(self, value: str) -> bool:
        """See ``Bound``."""
        return re.fullmatch(self.pattern, value) is not None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "pattern": f"^{self.pattern}$"}


Name: TypeAlias = Annotated[str, Matches(r"[a-z]([a-z0-9-]*[a-z0-9])?"), Length(1, 24)]
"""Name of a capacity group: a service or a training job."""

WholeNumber: TypeAlias = Annotated[int, AtLeast(0)]

NOTICE_SECONDS: Final = 120.0
"""From a Spot interruption notice to termination.

Source: EC2 user guide, "Spot Instance interruption notices".
"""

READINESS_SECONDS: Final = 5
"""The longest that an HTTP worker's readiness may take, for its agent and for the proxies."""

MAX_PROXY_SERVERS: Final = 4000
"""Bound of a proxy's table in HAProxy, about 10 KiB each."""

DrainSeconds: TypeAlias = Annotated[int, Within(0, int(NOTICE_SECONDS) - 10)]
"""Before the deadline: a notice is detected within 5 seconds."""

SlotsPerGpu: TypeAlias = Annotated[int, Within(1, 64)]

GpusPerWorker: TypeAlias = Annotated[int, Within(1, 8)]

SharedMemoryGib: TypeAlias = Annotated[int, Within(1, 1024)]
"""Size of ``/dev/shm``."""

MaxRestarts: TypeAlias = Annotated[int, Within(0, 100)]

StalledAfterMinutes: TypeAlias = Annotated[int, Within(0, 10_080)]
"""0: disabled. At most a week."""

Arguments: TypeAlias = Annotated[tuple[str, ...], Length(0, 64)]

Command: TypeAlias = Annotated[tuple[str, ...], Length(1, 64)]
"""A program and its arguments."""

EnvironmentName: TypeAlias = Annotated[str, Matches(r"[A-Za-z_][A-Za-z0-9_]*"), Length(1, 128)]

# `docker --env-file` supports neither quotes nor line continuation.
EnvironmentValue: TypeAlias = Annotated[str, Matches(r"[^\x00-\x1f\x7f]*")]

Environment: TypeAlias = dict[EnvironmentName, EnvironmentValue]

RESERVED_VARIABLES: Final = ("GPU_SPOT_", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Beginnings of names of environment variables that only the agent sets."""

Experiments: TypeAlias = dict[EnvironmentName, Annotated[tuple[EnvironmentValue, ...], Length(1, 1000)]]
"""Values by environment variable; each combination is an experiment."""

ContainerImage: TypeAlias = Annotated[
    str, Matches(r"[a-z0-9][A-Za-z0-9_./:-]*@sha256:[0-9a-f]{64}"), Length(1, 512)
]
"""Pinned by digest: a tag can be moved."""

# Without user and password: the URL is part of the user data.
CodeRepository: TypeAlias = Annotated[
    str, Matches(r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9_.~-]+)+"), Length(1, 512)
]

PythonVersion: TypeAlias = Annotated[str, Matches(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")]

_DIRECTORIES = r"([A-Za-z0-9_][A-Za-z0-9_.-]*/)*"

RequirementsFile: TypeAlias = Annotated[
    str,
    Matches(rf"{_DIRECTORIES}([A-Za-z0-9_][A-Za-z0-9_.-]*\.txt|pylock(\.[A-Za-z0-9_-]+)?\.toml)"),
    Length(1, 256),
]
"""Path in the repository: a pip requirements file, or a lock file (PEP 751)."""

_VERSION = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"

DatasetVersion: TypeAlias = Annotated[str, Matches(_VERSION), Length(1, 32)]
"""Version of a prepared dataset: its contents change only together with the version."""

DatasetId: TypeAlias = Annotated[str, Matches(rf"[a-z]([a-z0-9-]*[a-z0-9])?@{_VERSION}"), Length(3, 57)]
"""``<name>@<version>``, the value of the snapshots' tag."""
# Source: Secrets Manager API reference, CreateSecret, "Name".
SecretName: TypeAlias = Annotated[str, Matches(r"[A-Za-z0-9/_+=.@-]+"), Length(1, 512)]

SecretReference: TypeAlias = Annotated[
    str, Matches(r"(ssm:)?[A-Za-z0-9/_+=.@-]+(:[A-Za-z0-9_.-]+)?"), Length(1, 512)
]
"""A secret's name and a key of its JSON value, see `contracts.agent.secret_sources`."""

Secrets: TypeAlias = dict[EnvironmentName, SecretReference]
"""Secret environment variables by name."""

QueueName: TypeAlias = Annotated[str, Matches(r"[A-Za-z0-9][A-Za-z0-9._-]*"), Length(1, 100)]
"""Name of a RabbitMQ queue. RabbitMQ allows 255 bytes of UTF-8; related queues append to this name."""

SqsUrl: TypeAlias = Annotated[str, Matches(r"sqs://[a-z0-9-]+/[0-9]{12}"), Length(1, 64)]
"""Region and account of SQS queues, in the URL format of ``spot_work``."""

WorkerPort: TypeAlias = Annotated[int, Within(1024, 65_000)]
"""First port of an instance's workers; more than 65,000 leaves no room for their slots."""
HttpPath: TypeAlias = Annotated[str, Matches(r"/[A-Za-z0-9/._~-]*"), Length(1, 128)]
"""A path of a URL, or the prefix of paths."""
HttpConcurrency: TypeAlias = Annotated[int, Within(1, 10_000)]
"""Requests at one worker at once."""
HttpIdleSeconds: TypeAlias = Annotated[int, Within(1, 4000)]
"""Time without a byte. Source of the maximum: the Application Load Balancer's idle timeout."""
MaxDeliveries: TypeAlias = Annotated[int, Within(1, 1000)]
"""Maximum deliveries of a message."""

MaxQueueLength: TypeAlias = Annotated[int, Within(0, 10_000_000)]
"""Maximum messages that wait in a queue; 0: unlimited."""

Revision: TypeAlias = Annotated[str, Matches(r"[0-9a-f]{40}")]
"""Full commit id. With a branch, two starts of a job could run different code."""

# A prefix that ends in a slash and contains no wildcard of IAM policies: the role may read nothing else.
DatasetLocation: TypeAlias = Annotated[
    str, Matches(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_.=-]+/)*"), Length(1, 512)
]

ArtifactsLocation: TypeAlias = DatasetLocation
"""The same for artifacts: the role may write nowhere else."""

DatasetPath: TypeAlias = Annotated[
    str, Matches(r"/(dltraining/datasets|data|mnt|srv)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+"), Length(1, 128)
]
"""Mount path of a dataset: below directories reserved for it, never over a system directory."""

SnapshotId: TypeAlias = Annotated[str, Matches(r"snap-[0-9a-f]{8,17}")]

KmsKeyArn: TypeAlias = Annotated[
    str,
    Matches(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:"
        r"key/(mrk-[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    ),
]
"""ARN of a key, not of an alias: their permissions differ. Source: EFS API reference."""

VolumeGib: TypeAlias = Annotated[int, Within(1, 16_384)]

OptionalVolumeGib: TypeAlias = Annotated[int, Within(0, 16_384)]
"""Size of a job's data volume; 0: no volume."""

ThroughputMib: TypeAlias = Annotated[int, Within(125, 750)]
"""MiB/s of a gp3 volume: 125 are free, 750 are the maximum at the free 3,000 IOPS (EBS user guide)."""

SnapshotIntervalMinutes: TypeAlias = Annotated[int, Within(0, 1440)]
"""Interval between snapshots of a job's volume during training; 0: only when the volume moves."""

InitializationRateMib: TypeAlias = Annotated[int, Within(100, 300)]
"""MiB/s at which EBS downloads a snapshot's blocks (EC2 API reference, ``VolumeInitializationRate``)."""
