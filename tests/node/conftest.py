from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import models
from tests.node import bench as training_bench
from tests.node import jobs
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost, UnitHost
from tests.node.workbench import Bench
from userdata.agent import tasks


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def metadata_server(clock: FakeClock) -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()


@pytest.fixture
def bench(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer
) -> Iterator[training_bench.Bench]:
    """A training job with real processes in simulated time."""
    made = training_bench.Bench(tmp_path, clock, metadata_server)
    yield made
    made.close()


@pytest.fixture
def workbench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    made = Bench(tmp_path, clock, metadata_server)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def aws() -> Iterator[Any]:
    """EC2's client, with the job table and the worker registry."""
    with models.moto():
        jobs.make_tables()
        yield boto3.client("ec2", region_name=jobs.REGION)


@pytest.fixture
def make_node(aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path) -> jobs.MakeNode:
    def made(zone: str = "a", name: str = "", host: UnitHost | None = None) -> tasks.Node:
        place = f"{jobs.REGION}{zone}"
        return jobs.node(aws, metadata_server, clock, tmp_path / name, place, host or DiskHost(aws))

    return made
