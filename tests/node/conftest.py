from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import models
from tests.node import jobs
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.workbench import Bench


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def metadata_server(clock: FakeClock) -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()


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
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """EC2's client, with the job table and the worker registry."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with models.moto():
        jobs.make_tables()
        yield boto3.client("ec2", region_name=jobs.REGION)
