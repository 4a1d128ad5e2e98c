"""One deployment of the sample program for this folder; every test starts without instances."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import deploy
from pulumi_on_moto.running.clock import simulated
from pulumi_on_moto.sandbox import sandbox
from rehearsal.cloud.local_cloud import LocalCloud
from tests.live.world import OURS, SAMPLE, START, Deployed, Running, empty


@pytest.fixture(scope="package")  # moto is not left to the tests of other folders
def deployed() -> Iterator[Deployed]:
    # Pulumi's runtime and moto are global: one program and one sandbox in a process.
    with sandbox("us-west-2") as clients:
        with warnings.catch_warnings():
            # pulumi-aws warns of its own old classes when it is imported.
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
            deployment = deploy(clients, load(SAMPLE, "dev", OURS))
        yield Deployed(clients, deployment)


@pytest.fixture
def running(deployed: Deployed) -> Iterator[Running]:
    with simulated(START) as clock:
        cloud = LocalCloud(deployed.clients, deployed.deployment, clock)
        running = Running(deployed.clients, deployed.deployment, clock, cloud)
        empty(running)
        yield running
