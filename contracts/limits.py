"""What one value may be: the bounds that the stack file's schema and the agent's configuration share.

A bound stands in a type's metadata, ``Annotated[int, Within(0, 110)]``. The agent's parser asks it
(``allows``); pydantic, which the agent does not have, asks it by its protocol for metadata
(``__get_pydantic_core_schema__``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Bound(Protocol):
    """A rule for one value; ``str()`` of it says what is allowed."""

    def allows(self, value: Any) -> bool:
        """Tell whether ``value``, which has the right type, is allowed."""
        ...

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return pydantic's core schema of the type with this bound."""
        ...


@dataclass(frozen=True)
class Within:
    """A number from ``least`` to ``most``, both included."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"

    def allows(self, value: float) -> bool:
        """See ``Bound``."""
        return self.least <= value <= self.most

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "ge": self.least, "le": self.most}


@dataclass(frozen=True)
class AtLeast:
    """A number that is ``least`` or more."""

    least: int

    def __str__(self) -> str:
        return f"{self.least} or more"

    def allows(self, value: float) -> bool:
        """See ``Bound``."""
        return self.least <= value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "ge": self.least}


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
    """A text or a list of ``least`` to ``most`` characters or elements, both included."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"a length of {self.least} to {self.most}"

    def allows(self, value: str | tuple[object, ...]) -> bool:
        """See ``Bound``."""
        return self.least <= len(value) <= self.most

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "min_length": self.least, "max_length": self.most}


@dataclass(frozen=True)
class Matches:
    """A text that matches ``pattern`` as a whole; alternatives stand in parentheses.

    The pattern is read by two engines, Python's and Rust's: no look-around, no references.
    """

    pattern: str

    def __str__(self) -> str:
        return f"what matches ^{self.pattern}$"

    def allows(self, value: str) -> bool:
        """See ``Bound``."""
        return re.fullmatch(self.pattern, value) is not None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``Bound``."""
        return {**handler(source), "pattern": f"^{self.pattern}$"}


Name: TypeAlias = Annotated[str, Matches(r"[a-z]([a-z0-9-]*[a-z0-9])?"), Length(1, 24)]
"""Of a group, which is a service or a training job."""

WholeNumber: TypeAlias = Annotated[int, AtLeast(0)]

DrainSeconds: TypeAlias = Annotated[int, Within(0, 110)]
"""Before the end: a spot notice leaves 120 seconds, and it is heard within 5."""

SlotsPerGpu: TypeAlias = Annotated[int, Within(1, 64)]

MaxRestarts: TypeAlias = Annotated[int, Within(0, 100)]

StalledAfterMinutes: TypeAlias = Annotated[int, Within(0, 10_080)]
"""0: never. At most a week."""

Arguments: TypeAlias = Annotated[tuple[str, ...], Length(0, 64)]

Command: TypeAlias = Annotated[tuple[str, ...], Length(1, 64)]
"""A program and its arguments."""

EnvironmentName: TypeAlias = Annotated[str, Matches(r"[A-Za-z_][A-Za-z0-9_]*"), Length(1, 128)]

# `docker --env-file` knows neither quotes nor continued lines.
EnvironmentValue: TypeAlias = Annotated[str, Matches(r"[^\x00-\x1f\x7f]*")]

Environment: TypeAlias = dict[EnvironmentName, EnvironmentValue]

Experiments: TypeAlias = dict[EnvironmentName, Annotated[tuple[EnvironmentValue, ...], Length(1, 1000)]]
"""Values by variable: an experiment for each combination."""

ContainerImage: TypeAlias = Annotated[
    str, Matches(r"[a-z0-9][A-Za-z0-9_./:-]*@sha256:[0-9a-f]{64}"), Length(1, 512)
]
"""Pinned by digest: a tag can be moved."""

# No user and no password in it: it stands in the boot data.
CodeRepository: TypeAlias = Annotated[
    str, Matches(r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9_.~-]+)+"), Length(1, 512)
]

PythonVersion: TypeAlias = Annotated[str, Matches(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")]

_FOLDERS = r"([A-Za-z0-9_][A-Za-z0-9_.-]*/)*"

RequirementsFile: TypeAlias = Annotated[
    str,
    Matches(rf"{_FOLDERS}([A-Za-z0-9_][A-Za-z0-9_.-]*\.txt|pylock(\.[A-Za-z0-9_-]+)?\.toml)"),
    Length(1, 256),
]
"""In the repository: a file as pip reads it, or a lock as PEP 751 has it."""

_VERSION = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"

DatasetVersion: TypeAlias = Annotated[str, Matches(_VERSION), Length(1, 32)]
"""Of a dataset that is prepared: what is in it changes with it, and with nothing else."""

DatasetId: TypeAlias = Annotated[str, Matches(rf"[a-z]([a-z0-9-]*[a-z0-9])?@{_VERSION}"), Length(3, 57)]
"""``<name>@<version>``: as snapshots are tagged with it."""
# The letters that Secrets Manager allows in a name (CreateSecret, "Name").
SecretName: TypeAlias = Annotated[str, Matches(r"[A-Za-z0-9/_+=.@-]+"), Length(1, 512)]

QueueName: TypeAlias = Annotated[str, Matches(r"[A-Za-z0-9][A-Za-z0-9._-]*"), Length(1, 100)]
"""Of a queue in RabbitMQ, which takes more (255 bytes, UTF-8); others are named after it."""

SqsUrl: TypeAlias = Annotated[str, Matches(r"sqs://[a-z0-9-]+/[0-9]{12}"), Length(1, 64)]
"""A region and an account, in the words of ``spot_work``."""

Tries: TypeAlias = Annotated[int, Within(1, 1000)]
"""How often a task of a queue may be begun."""

MostWaiting: TypeAlias = Annotated[int, Within(0, 10_000_000)]
"""Tasks that may wait in a queue; 0: no limit."""

Revision: TypeAlias = Annotated[str, Matches(r"[0-9a-f]{40}")]
"""A full commit id: a branch would make two starts of one job two programs."""

# Whole folders, and no letter that a policy would read as a wildcard: the role may read nothing else.
DatasetFolder: TypeAlias = Annotated[
    str, Matches(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_.=-]+/)*"), Length(1, 512)
]

ArtifactsFolder: TypeAlias = DatasetFolder
"""Of such a folder likewise: the role may write nowhere else."""

DatasetPath: TypeAlias = Annotated[
    str, Matches(r"/(dltraining/datasets|data|mnt|srv)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+"), Length(1, 128)
]
"""Where datasets may be mounted: below places that nobody else uses, never over a part of the system."""

SnapshotId: TypeAlias = Annotated[str, Matches(r"snap-[0-9a-f]{8,17}")]

KmsKeyArn: TypeAlias = Annotated[
    str,
    Matches(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:"
        r"key/(mrk-[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    ),
]
"""Of a key itself: permissions of an alias are not those of its key. As EFS's API has it."""

VolumeGib: TypeAlias = Annotated[int, Within(1, 16_384)]

VolumeGibOrNone: TypeAlias = Annotated[int, Within(0, 16_384)]
"""Of a job's own data volume; 0: it has none."""

ThroughputMib: TypeAlias = Annotated[int, Within(125, 750)]
"""Of a gp3 volume in MiB/s: 125 is free, 750 the most that its free 3,000 IOPS allow (EBS user guide)."""

SnapshotEveryMinutes: TypeAlias = Annotated[int, Within(0, 1440)]
"""Between two snapshots of a job's volume while it trains; 0: only at moves."""

InitializationRateMib: TypeAlias = Annotated[int, Within(100, 300)]
"""MiB/s at which AWS fetches a snapshot's blocks ahead of reads (EC2's API, ``VolumeInitializationRate``)."""
