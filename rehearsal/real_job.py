"""A training job whose own command is run: its code is served here, and its results are compared.

The stack file names a host that does not exist, ``HOST``; what lies below it are folders of this project.
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
"""What of this project a job may import, where it is there: no package index has it."""
MINUTES: Final = 6000
"""How long the script of its market is; the job is done long before, on however slow a machine."""
LOSSES: Final = 8
"""How often the zone closes that alone is open, before all are open for good."""
_FIRST, _STAY = 20, 25
"""The minute of the first closing, and the minutes between two. A move takes about five of them."""
_REFUSED_AT, _REFUSED_FOR = 2, 10
"""At this closing, counted from 0, spot is refused everywhere for so many minutes: on-demand stands in."""


@dataclass(frozen=True, slots=True)
class Script:
    """Where the code of a job lies that is really run: in a folder of ``project``.

    ``python`` is the virtual environment that it runs with; None: what its stack file asks for.
    """

    project: Path
    python: Path | None = None

    def __post_init__(self) -> None:
        if self.python is not None:
            programs_of(self.python)  # told before anything is deployed


def closing(zones: tuple[str, ...]) -> tuple[PoolTrace, ...]:
    """Return the market's script: one zone is open at a time, ``LOSSES`` times it closes and the next opens.

    Once no zone is open for ten minutes. Raises ``LocalCloudError`` for a single zone.
    """
    if len(zones) < 2:
        raise LocalCloudError(f"{len(zones)} zone, the script of a real job's market needs two")
    names = sorted(zones)
    zone_cycle = cycle(range(len(names)))  # of the zone that is open
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
    """A job that is really run. ``work`` is for its instances; ``outcome`` is asked in the end."""

    work: RealWork
    outcome: Callable[[Nodes], JobEnding]
    is_over: Callable[[], bool]


@contextlib.contextmanager
def real_job(script: Script, clients: AwsClients, agent: Config) -> Iterator[RealJob]:
    """Serve the code of the job that ``agent`` trains, once its command has run with nobody to interrupt it.

    How long its steps took then sets the pace: they are spread over the script of the market.
    Raises ``LocalCloudError`` where the stack names another host, or not what lies in the project.
    """
    training = agent.training
    assert training is not None
    path = urlsplit(training.repository).path.strip("/")
    source = script.project / path
    if not training.repository.startswith(f"{HOST}/") or not source.is_dir():
        raise LocalCloudError(
            f"repository is {training.repository}, allowed for a job that is really run: "
            f"{HOST}/FOLDER, a folder of this project"
        )
    if training.image is not None:
        raise LocalCloudError(
            "the job runs in a container, allowed for one that is really run: python, or none"
        )
    with tempfile.TemporaryDirectory(prefix="gpu-spot-job-") as temporary:
        folder = Path(temporary)
        commit = repository.made_of(source, folder / "served" / path)
        if commit != training.revision:
            raise LocalCloudError(f"revision is {training.revision}, {path} as it lies here is {commit}")
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
    """Return what the job table says of the job."""
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
