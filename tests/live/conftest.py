"""One deployment of the sample program for this folder; every test starts without instances."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Final

import pytest

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import deploy
from pulumi_on_moto.emulator import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal.cloud.local_cloud import LocalCloud
from tests.live.world import OURS, SAMPLE, START, Deployed, Running, empty

_OPEN: Final = ExitStack()
"""What the deployment of this folder's tests keeps open in this process."""


@cache
def _deploy() -> Deployed:
    # Pulumi's runtime and moto are global: one program and one sandbox in a process.
    clients = _OPEN.enter_context(sandbox("us-west-2"))
    with warnings.catch_warnings():
        # pulumi-aws warns of its own old classes when it is imported.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
        return Deployed(clients, deploy(clients, load(SAMPLE, "dev", OURS)))


@pytest.fixture
def deployed() -> Deployed:
    return _deploy()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave no moto to the tests of other folders."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _OPEN.close()
        _deploy.cache_clear()


@pytest.fixture
def running(deployed: Deployed) -> Iterator[Running]:
    with simulated(START) as clock:
        cloud = LocalCloud(deployed.clients, deployed.deployment, clock)
        running = Running(deployed.clients, deployed.deployment, clock, cloud)
        empty(running)
        yield running
