"""What a service's workers are started from, and who is to start from what: the form of the registry's row.

The program writes the release that is wanted (parameter ``release``), the health checker the row, the agents
read it before they start workers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from contracts import codec, names
from contracts.stored import ContractError, FieldMark, stored

ROW: Final = "release"
"""Sort key of the row in the partition `names.release_partition`."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class WorkerRelease:
    """An image with its command and environment; without an image the command is a process of the AMI."""

    image: Annotated[str, FieldMark.REQUIRED] = ""
    command: Annotated[tuple[str, ...], FieldMark.REQUIRED] = ()
    environment: Annotated[Mapping[str, str], FieldMark.REQUIRED] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for one that starts nothing."""
        if not self.image and not self.command:
            raise ValueError("image and command of a release are both empty, allowed: one of them")

    @property
    def version(self) -> str:
        """What tells it from others: the image's digest and, where there is more, a hash of that."""
        if self.image and not self.command and not self.environment:
            return self.image.rpartition("@")[2]
        told = json.dumps([self.command, sorted(self.environment.items())])
        more = hashlib.sha256(told.encode()).hexdigest()
        return f"{self.image.rpartition('@')[2]}+{more[:12]}" if self.image else f"command:{more}"


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class WorkerReleases:
    """From what workers start: ``stable``, but ``trial`` on the instances in ``on``.

    ``mostly`` says that ``trial`` has proved itself on most: whoever is new starts from it, too.
    """

    stable: WorkerRelease
    trial: Annotated[WorkerRelease | None, FieldMark.REQUIRED] = None
    on: frozenset[str] = frozenset()
    mostly: bool = False

    def of(self, instance: str) -> WorkerRelease:
        """Return from what the workers of an instance are to start."""
        return self.trial if self.trial is not None and (self.mostly or instance in self.on) else self.stable


def key(group: str) -> dict[str, Any]:
    """Return the key of a group's row."""
    return {names.REGISTRY_KEY: {"S": names.release_partition(group)}, names.REGISTRY_SORT_KEY: {"S": ROW}}


def dump(group: str, releases: WorkerReleases) -> dict[str, Any]:
    """Return the row; equal releases as equal rows."""
    text = json.dumps(codec.dump(releases), sort_keys=True, separators=(",", ":"))
    return {**key(group), "releases": {"S": text}}


def parse(item: Mapping[str, Any]) -> WorkerReleases:
    """Read a row; raise `ContractError` for one that the health checker cannot have written."""
    try:
        return codec.parse_text(WorkerReleases, item["releases"]["S"])
    except (KeyError, TypeError) as error:
        raise ContractError(f"the row of releases makes no sense: {error!r}") from None
