"""Rehearsal of a training job that runs the job's real command and compares its results.

The stack file names a host that does not exist, ``HOST``; its repositories are folders of this project.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from contracts.agent.config import Config, Training
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.sandbox import AwsClients
from rehearsal.machines.group import Nodes
from rehearsal.machines.real import code_host, repository
from rehearsal.machines.real.commands import RealWork, with_python
from rehearsal.machines.real.job_environment import built, programs_of
from rehearsal.results.moves import JobEnding
from rehearsal.undisturbed import digests, undisturbed

HOST: Final = "https://git.example.org"
LIBRARY: Final = "spot_training/src"
"""Library of this project that a job may import if present; it is in no package index."""
MINUTES: Final = 6000
"""Length of the scripted market; the job finishes long before, even on a slow machine."""
LOSSES: Final = 8
"""How often the only open zone closes before all zones stay open."""
_FIRST, _STAY = 20, 25
"""Minute of the first closing, and minutes between two. A move takes about five minutes."""
_REFUSED_AT, _REFUSED_FOR = 2, 10
"""Index of the closing at which all zones lose Spot capacity, and its minutes: On-Demand replaces it."""


@dataclass(frozen=True, slots=True)
class Script:
    """Location of a job's code: a folder of ``project``.

    ``python`` is the virtual environment that runs it; None: the one of the stack file.
    """

    project: Path
    python: Path | None = None

    def __post_init__(self) -> None:
        if self.python is not None:
            programs_of(self.python)  # fail before anything is deployed


def closing(zones: tuple[str, ...]) -> tuple[PoolTrace, ...]:
    """Return the scripted market: one zone is open at a time; ``LOSSES`` times it closes and the next opens.

    Once no zone is open for ten minutes. Raises ``LocalCloudError`` for a single zone.
    """
    if len(zones) < 2:
        raise LocalCloudError(f"the group has {len(zones)} zone, --job needs at least two")
    names = sorted(zones)
    zone_cycle = cycle(range(len(names)))  # indices of the open zone
    is_open = [next(zone_cycle)] * _FIRST
    for loss in range(LOSSES):
        refused = _REFUSED_FOR if loss == _REFUSED_AT else 0
        is_open += [-1] * refused + [next(zone_cycle)] * (_STAY - refused)
    return tuple(
        PoolTrace(
            zone,
            60.0,
            tuple(int(minute >= len(is_open) or is_open[minute] == zone_index) for minute in range(MINUTES)),
        )
        for zone_index, zone in enumerate(names)
    )


@dataclass(frozen=True, slots=True)
class RealJob:
    """A job whose real command runs. ``work`` is for its instances; ``outcome`` returns the result."""

    work: RealWork
    outcome: Callable[[Nodes], JobEnding]
    is_over: Callable[[], bool]


@contextlib.contextmanager
def real_job(script: Script, clients: AwsClients, agent: Config) -> Iterator[RealJob]:
    """Run the command of ``agent``'s job once undisturbed, then serve its code for the rehearsal.

    The undisturbed duration sets the pace: the steps are spread over the scripted market.
    Raises ``LocalCloudError`` if the stack names another host or revision than the project has.
    """
    training = agent.training
    assert training is not None
    path = urlsplit(training.repository).path.strip("/")
    source = script.project / path
    if not training.repository.startswith(f"{HOST}/") or not source.is_dir():
        raise LocalCloudError(
            f"repository is {training.repository}, allowed with --job: "
            f"{HOST}/FOLDER, a folder of this project"
        )
    if training.image is not None:
        raise LocalCloudError("the job has an image, allowed with --job: python or neither")
    with tempfile.TemporaryDirectory(prefix="gpu-spot-job-") as temporary:
        folder = Path(temporary)
        commit = repository.made_of(source, folder / "served" / path)
        if commit != training.revision:
            raise LocalCloudError(f"revision is {training.revision}, but folder {path} has {commit}")
        data = folder / "datasets"
        _download(clients, agent.volume.dataset if agent.volume else None, data)
        programs = None
        if script.python is not None:
            programs = programs_of(script.python)
        elif training.python is not None:
            programs = built(training, source, script.project / "out/python")
        library = script.project / LIBRARY
        library_here = library if library.is_dir() else None
        environment = with_python(
            {
                **os.environ,
                **training.environment,
                "GPU_SPOT_JOB": training.job,
                "GPU_SPOT_DATASETS": str(data),
                "PYTHONUNBUFFERED": "1",
            },
            programs,
            library_here,
        )
        alone = undisturbed(training, source, folder / "alone", environment)
        pace = LOSSES * _STAY * 60 / max(alone.seconds, 1.0)
        with code_host.serving(folder / "served", folder / "tls") as host:
            work = RealWork(host, HOST, pace, programs, library_here)

            def outcome(nodes: Nodes) -> JobEnding:
                volume_folder = nodes.disks.folder(_item(clients, training)["volume"])
                return JobEnding(
                    state=_item(clients, training)["state"],
                    repository=training.repository,
                    revision=training.revision,
                    command=training.command,
                    results=digests(volume_folder / "artifacts" / training.job),
                    undisturbed=alone.results,
                )

            def is_over() -> bool:
                return _item(clients, training).get("state") in ("done", "failed")

            yield RealJob(work, outcome, is_over)


def _item(clients: AwsClients, training: Training) -> Mapping[str, str]:
    """Return the job's item of the job table."""
    table, key = training.job_table, {"job": {"S": training.job}}
    item = clients("dynamodb").get_item(TableName=table, Key=key).get("Item", {})
    return {name: str(next(iter(value.values()))) for name, value in item.items()}


def _download(clients: AwsClients, uri: str | None, to: Path) -> None:
    to.mkdir()
    if uri is None:
        return
    parts = urlsplit(uri)
    bucket, prefix, s3 = parts.netloc, parts.path.lstrip("/"), clients("s3")
    for entry in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        (to / Path(entry["Key"]).name).write_bytes(body)
