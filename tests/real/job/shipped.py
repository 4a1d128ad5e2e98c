"""A training job of this project, really run to its end in a rehearsal, and once without interruptions."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contracts.agent.config import Training
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines import boot, shared
from rehearsal.rehearse import ProgressListener, RehearsalOptions, rehearse
from rehearsal.results.summary import summarise
from tests.e2e.world import REPOSITORY, living, load
from tests.real.job import code_host, repository
from tests.real.job.commands import RealWork, begins_at, digests
from tests.real.service_host import kill_all

HOST: Final = "https://git.example.org"
FOLDER: Final = "examples/training"
MINUTES: Final = 6000
"""Length of the scripted market; the job finishes long before, even on a slow machine."""
LOSSES: Final = 3
"""How often the only open zone closes before all zones stay open."""
_FIRST, _STAY = 20, 25
"""Minute of the first closing, and minutes between two. A move takes about five minutes."""
_REFUSED_AT, _REFUSED_FOR = 2, 10
"""Index of the closing at which all zones lose Spot capacity, and its minutes: On-Demand replaces it."""


def closing(zones: tuple[str, ...]) -> tuple[PoolTrace, ...]:
    """Return the market: one zone is open at a time; ``LOSSES`` times it closes and the next opens."""
    if len(zones) < 2:
        raise LocalCloudError(f"the group has {len(zones)} zone, at least two are needed")
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
class Undisturbed:
    """Result of an uninterrupted run: SHA-256 of each artifact, and seconds of the steps."""

    results: Mapping[str, str]
    seconds: float


def undisturbed(
    training: Training, source: Path, folder: Path, environment: Mapping[str, str]
) -> Undisturbed:
    """Run the command once in ``source`` and wait for its end; its files are written below ``folder``."""
    folders = {"CHECKPOINTS": "checkpoints", "ARTIFACTS": "artifacts", "SCRATCH": "scratch"}
    files = {"DONE": "done", "TELL": "tell", "NOTICE": "notice"}
    for name in folders.values():
        (folder / name).mkdir(parents=True)
    places_here = {f"GPU_SPOT_{name}": str(folder / path) for name, path in (folders | files).items()}
    output_file, began = folder / "output", time.perf_counter()
    first = None
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            list(training.command),
            cwd=source,
            env={**environment, **places_here},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if first is None and begins_at(output_file, folder / "tell") is not None:
                first = time.perf_counter()
            time.sleep(0.02)
    finally:
        kill_all(process.pid)
        process.wait()
    if process.returncode:
        last = output_file.read_text(errors="replace").splitlines()[-1:] or ["no output"]
        raise LocalCloudError(f"{' '.join(training.command)}: exit {process.returncode}: {last[0]}")
    return Undisturbed(digests(folder / "artifacts"), time.perf_counter() - (first or began))


def played(steps: int, seed: int) -> dict[str, Any]:
    """Run the shipped job in the stack ``research`` for ``steps`` steps, half of the losses announced."""
    replaced: dict[str, Any] = {
        "repository": f"{HOST}/{FOLDER}",
        "revision": repository.commit_of(REPOSITORY / FOLDER),
        "command": ["python3", "train.py", "--steps", str(steps)],
        "python": None,
        "environment": {},
    }
    config = load("research", {f"training[0].{key}": value for key, value in replaced.items()})
    with living(config, seed) as world, tempfile.TemporaryDirectory() as temporary:
        folder, source = Path(temporary), REPOSITORY / FOLDER
        agent = boot.parse(world.cloud.boot_data("resnet")).agent
        training = agent.training
        assert training is not None
        assert agent.volume is not None
        assert training.repository == f"{HOST}/{FOLDER}"
        assert repository.made_of(source, folder / "served" / FOLDER) == training.revision
        shared.stand_in(world.clients, agent.volume.dataset)
        _download(world.clients("s3"), agent.volume.dataset, folder / "datasets")
        ours = {
            "GPU_SPOT_JOB": training.job,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(REPOSITORY / "packages/spot-training/src"),
        }
        around = {**os.environ, **training.environment, **ours}
        around["GPU_SPOT_DATASETS"] = str(folder / "datasets")
        alone = undisturbed(training, source, folder / "alone", around)
        pace = LOSSES * _STAY * 60 / max(alone.seconds, 1.0)

        def state() -> str:
            key = {"job": {"S": training.job}}
            item = world.clients("dynamodb").get_item(TableName=training.job_table, Key=key).get("Item", {})
            return str(item.get("state", {}).get("S"))

        with code_host.serving(folder / "served", folder / "tls") as host:
            work = RealWork(host, HOST, pace, ours)
            market = closing(world.cloud.group("resnet").zones)
            options = RehearsalOptions("resnet", MINUTES / 60, (), market, 1, 0.5, seed)
            run = rehearse(
                options, world.cloud, ProgressListener(), work=work, is_over=lambda: state() == "done"
            )
        return {
            "summary": summarise(run),
            "state": state(),
            "results": work.results,
            "undisturbed": alone.results,
        }


def _download(s3: Any, uri: str, to: Path) -> None:
    to.mkdir()
    parts = urlsplit(uri)
    bucket, prefix = parts.netloc, parts.path.lstrip("/")
    for entry in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        (to / Path(entry["Key"]).name).write_bytes(body)
