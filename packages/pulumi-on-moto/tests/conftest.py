"""The sample program, deployed once; processes that see the same packages as this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.sqs.models import sqs_backends

from pulumi_on_moto import Deployment, StackConfig, load
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.running.clock import SimulatedTime, simulated

START = 1_700_000_000.0
_WITH_THEIR_OWN = {"test_speedups.py", "test_experiments.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let those be first that open sandboxes of their own: the sample's stays open to the end."""
    items.sort(key=lambda item: item.path.name not in _WITH_THEIR_OWN)


@pytest.fixture(scope="session")
def pulumi_stack() -> StackConfig:
    return load(Path(__file__).with_name("sample"), "dev")


@pytest.fixture
def deployment(pulumi_deployment: Deployment) -> Deployment:
    """The sample with empty queues."""
    for queue in sqs_backends[ACCOUNT][pulumi_deployment.region].queues.values():
        queue._messages.clear()  # PurgeQueue would be refused within a minute of the last one
        queue.pending_messages.clear()
    return pulumi_deployment


@pytest.fixture
def clock() -> Iterator[SimulatedTime]:
    with simulated(START) as clock:
        yield clock


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    """Run code in a process that imports from where this one does; return what it prints."""

    def run(code: str, *arguments: object) -> str:
        prelude = f"import sys; sys.path[:] = {sys.path!r}\n"
        command = [sys.executable, "-I", "-S", "-c", prelude + code, *map(str, arguments)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, check=False, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
