"""What a service's workers are started from, and who is to start from what: the form of the registry's row.

The program writes the release that is wanted (parameter ``release``), the health checker the row, the agents
read it before they start workers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts import names

ROW: Final = "release"
"""Sort key of the row in the partition `names.release_partition`."""


@dataclass(frozen=True, slots=True)
class WorkerRelease:
    """An image with its command and environment; without an image the command is a process of the AMI."""

    image: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def version(self) -> str:
        """What tells it from others: the image's digest and, where there is more, a hash of that."""
        if self.image and not self.command and not self.environment:
            return self.image.rpartition("@")[2]
        told = json.dumps([self.command, sorted(self.environment.items())])
        more = hashlib.sha256(told.encode()).hexdigest()
        return f"{self.image.rpartition('@')[2]}+{more[:12]}" if self.image else f"command:{more}"


@dataclass(frozen=True, slots=True)
class WorkerReleases:
    """From what workers start: ``stable``, but ``trial`` on the instances in ``on``.

    ``mostly`` says that ``trial`` has proved itself on most: whoever is new starts from it, too.
    """

    stable: WorkerRelease
    trial: WorkerRelease | None = None
    on: frozenset[str] = frozenset()
    mostly: bool = False

    def of(self, instance: str) -> WorkerRelease:
        """Return from what the workers of an instance are to start."""
        return self.trial if self.trial is not None and (self.mostly or instance in self.on) else self.stable


def as_json(release: WorkerRelease) -> dict[str, Any]:
    """Return a release as JSON knows it."""
    return {
        "image": release.image,
        "command": list(release.command),
        "environment": dict(release.environment),
    }


def of_json(raw: Any) -> WorkerRelease:
    """Read what `as_json` made; raise ``ValueError`` for all else."""
    try:
        image, command, environment = raw["image"], raw["command"], raw["environment"]
        texts = [image, *command, *environment, *environment.values()]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a release makes no sense: {error!r}") from None
    if not all(isinstance(text, str) for text in texts) or not (image or command):
        raise ValueError("a release makes no sense: an image or a command is needed, and texts")
    return WorkerRelease(image, tuple(command), dict(environment))


def key(group: str) -> dict[str, Any]:
    """Return the key of a group's row."""
    return {names.REGISTRY_KEY: {"S": names.release_partition(group)}, names.REGISTRY_SORT_KEY: {"S": ROW}}


def dump(group: str, releases: WorkerReleases) -> dict[str, Any]:
    """Return the row; equal releases as equal rows."""
    told = {
        "stable": as_json(releases.stable),
        "trial": None if releases.trial is None else as_json(releases.trial),
        "on": sorted(releases.on),
        "mostly": releases.mostly,
    }
    return {**key(group), "releases": {"S": json.dumps(told, sort_keys=True, separators=(",", ":"))}}


def parse(item: Mapping[str, Any]) -> WorkerReleases:
    """Read a row; raise ``ValueError`` for one that the health checker cannot have written."""
    try:
        raw = json.loads(item["releases"]["S"])
        trial = None if raw["trial"] is None else of_json(raw["trial"])
        return WorkerReleases(
            of_json(raw["stable"]), trial, frozenset(map(str, raw["on"])), bool(raw["mostly"])
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the row of releases makes no sense: {error!r}") from None
