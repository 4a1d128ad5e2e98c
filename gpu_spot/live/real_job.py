"""A training job whose own command is run: its code is served here, and its results are compared.

The stack file names a host that does not exist, ``HOST``; what lies below it are folders of this project.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpu_spot.facts.moves import JobEnding
from gpu_spot.market.supply.trace import PoolTrace
from gpu_spot.nodes import code_host, repository
from gpu_spot.nodes.group import Nodes
from gpu_spot.nodes.real import RealWork
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.sandbox import AwsClients
from userdata.agent.config.model import Config, Training

HOST: Final = "https://git.example.org"
MINUTES: Final = 600
"""How long the script of its market is; the job is done long before, on however slow a machine."""
_CLOSED: Final = (range(30, MINUTES), range(65, MINUTES), range(100, 110))
"""The minutes in which the first zone, the second and the third have no spot: the job is lost three times."""


def closing(zones: tuple[str, ...]) -> tuple[PoolTrace, ...]:
    """Return the market's script: three zones close one after the other, the last for ten minutes.

    Raises ``LocalCloudError`` for another number of zones.
    """
    if len(zones) != len(_CLOSED):
        raise LocalCloudError(f"{len(zones)} zones, the script of a real job's market has {len(_CLOSED)}")
    return tuple(
        PoolTrace(zone, 60.0, tuple(int(minute not in closed) for minute in range(MINUTES)))
        for zone, closed in zip(sorted(zones), _CLOSED, strict=True)
    )


@dataclass(frozen=True, slots=True)
class RealJob:
    """A job that is really run. ``work`` is for its instances; ``outcome`` is asked in the end."""

    work: RealWork
    outcome: Callable[[Nodes], JobEnding]
    is_over: Callable[[], bool]


@contextlib.contextmanager
def real_job(project: Path, clients: AwsClients, agent: Config) -> Iterator[RealJob]:
    """Serve the code of the job that ``agent`` trains, and run its command once with nobody to interrupt it.

    Raises ``LocalCloudError`` where the stack names another host, or not what lies in the project.
    """
    training = agent.training
    assert training is not None
    place = urlsplit(training.repository)
    source = project / place.path.strip("/")
    if not training.repository.startswith(f"{HOST}/") or not source.is_dir():
        raise LocalCloudError(
            f"repository is {training.repository}, allowed for a job that is really run: "
            f"{HOST}/FOLDER, a folder of this project"
        )
    with tempfile.TemporaryDirectory(prefix="gpu-spot-job-") as temporary:
        folder = Path(temporary)
        commit = repository.made_of(source, folder / "served" / place.path.strip("/"))
        if commit != training.revision:
            raise LocalCloudError(
                f"revision is {training.revision}, {place.path.strip('/')} as it lies here is {commit}"
            )
        data = folder / "datasets"
        _download(clients, agent.volume.dataset if agent.volume else None, data)
        with (
            code_host.serving(folder / "served", folder / "tls") as host,
            _undisturbed(training, source, folder, data) as results,
        ):
            work = RealWork(host, HOST)

            def outcome(nodes: Nodes) -> JobEnding:
                here = nodes.disks.folder(_item(clients, training)["volume"])
                return JobEnding(
                    state=_item(clients, training)["state"],
                    repository=training.repository,
                    revision=training.revision,
                    command=training.command,
                    results=_digests(here / "artifacts" / training.job),
                    undisturbed=results(),
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


@contextlib.contextmanager
def _undisturbed(
    training: Training, source: Path, folder: Path, data: Path
) -> Iterator[Callable[[], Mapping[str, str]]]:
    """Run the command beside the rehearsal; yield what waits for its end and returns its results."""
    environment = {
        **os.environ,
        **training.environment,
        "GPU_SPOT_DATASETS": str(data),
        "GPU_SPOT_CHECKPOINTS": str(folder / "checkpoints"),
        "GPU_SPOT_ARTIFACTS": str(folder / "artifacts"),
        "GPU_SPOT_DONE": str(folder / "done"),
    }
    with (folder / "output").open("wb") as said:
        process = subprocess.Popen(  # noqa: S603
            list(training.command), cwd=source, env=environment, stdout=said, stderr=said
        )

    def results() -> Mapping[str, str]:
        if code := process.wait():
            last = (folder / "output").read_text(errors="replace").splitlines()[-1:] or ["no output"]
            raise LocalCloudError(f"{' '.join(training.command)}: exit {code}: {last[0]}")
        return _digests(folder / "artifacts")

    try:
        yield results
    finally:
        process.kill()
        process.wait()


def _digests(folder: Path) -> Mapping[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
