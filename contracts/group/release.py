"""Releases of a service's workers, and the registry item that assigns them to instances.

Pulumi writes the desired release (parameter ``release``), the health checker the item; agents read the item
before they start workers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from contracts import codec, names
from contracts.agent.config import Queue
from contracts.stored import ContractError, FieldMark, Stored, stored

SORT_KEY: Final = "release"
"""Sort key of the item in the partition `names.release_partition`."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class WorkerRelease:
    """An image with its command and environment; without an image, the command of a process on the AMI.

    ``secrets`` (secret by variable) and ``queue`` (none or one) are as in the node agent's configuration; of
    an item without them, those that an instance was launched with.
    """

    image: Annotated[str, FieldMark.REQUIRED] = ""
    command: Annotated[tuple[str, ...], FieldMark.REQUIRED] = ()
    environment: Annotated[Mapping[str, str], FieldMark.REQUIRED] = field(default_factory=dict, hash=False)
    secrets: Annotated[Mapping[str, str] | None, FieldMark.SPARSE] = field(default=None, hash=False)
    queue: Annotated[tuple[Queue, ...] | None, FieldMark.SPARSE] = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if neither image nor command is set."""
        if not self.image and not self.command:
            raise ValueError("image and command of a release are both empty; set one of them")

    @property
    def version(self) -> str:
        """The unique version: the image's digest, plus a hash of what else is set."""
        more = [sorted((self.secrets or {}).items()), codec.dump(self.queue or ())]
        settings = [self.command, sorted(self.environment.items()), *(more if any(more) else ())]
        if self.image and not any(settings):
            return self.image.rpartition("@")[2]
        digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        return f"{self.image.rpartition('@')[2]}+{digest[:12]}" if self.image else f"command:{digest}"


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class WorkerReleases:
    """Releases by instance: ``candidate`` on ``candidate_instances``, ``stable`` on all others.

    With ``is_candidate_default``, set once most instances have verified the candidate, all instances start
    from it.
    """

    stable: WorkerRelease
    candidate: Annotated[WorkerRelease | None, FieldMark.REQUIRED, Stored("trial")] = None
    candidate_instances: Annotated[frozenset[str], Stored("on")] = frozenset()
    is_candidate_default: Annotated[bool, Stored("mostly")] = False

    def release_for(self, instance: str) -> WorkerRelease:
        """Return the release that the workers of an instance start from."""
        if self.candidate is None:
            return self.stable
        runs_candidate = self.is_candidate_default or instance in self.candidate_instances
        return self.candidate if runs_candidate else self.stable


def key(group: str) -> dict[str, Any]:
    """Return the key of a group's item."""
    return {
        names.REGISTRY_KEY: {"S": names.release_partition(group)},
        names.REGISTRY_SORT_KEY: {"S": SORT_KEY},
    }


def dump(group: str, releases: WorkerReleases) -> dict[str, Any]:
    """Return the item; equal releases give equal items."""
    text = json.dumps(codec.dump(releases), sort_keys=True, separators=(",", ":"))
    return {**key(group), "releases": {"S": text}}


def parse(item: Mapping[str, Any]) -> WorkerReleases:
    """Parse an item; raise `ContractError` if it is invalid."""
    try:
        return codec.parse_text(WorkerReleases, item["releases"]["S"])
    except (KeyError, TypeError) as error:
        raise ContractError(f"malformed item of releases: {error!r}") from None
