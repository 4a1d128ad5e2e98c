"""A service's workers in containers with a device file, supervised by the agent: killed, drained."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.broker_plays import crowd
from packages.broker_plays.workers import NOTICE_SECONDS
from packages.rabbitmq import RabbitServer
from tests.real import containers, stable


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder below which ``docker`` is podman, with an image of the workers."""
    with containers.folder() as place, containers.podman(place):
        containers.take_in(containers.python_image(stable.code()), containers.PYTHON)
        yield place


def test_nothing_is_lost_where_workers_are_containers(broker: RabbitServer, folder: Path) -> None:
    crowd.check(crowd.play(broker, stable.Containers(folder), 2000, workers=2, losses=4, seed=3))


def test_a_worker_that_is_signalled_before_it_listens_ends(folder: Path) -> None:
    """The kernel drops a SIGTERM for a container's first process that has no handler yet."""
    worker = stable.Containers(folder).start(1000, ["-c", "import time; time.sleep(600)"], "amqp://nobody")
    running = ["docker", "ps", "--quiet", "--filter", "name=gpu-spot-1000"]
    crowd.wait_for(lambda: subprocess.check_output(running), lambda: "nothing")
    started_at = time.monotonic()
    worker.drain()
    worker.wait()
    assert time.monotonic() - started_at < NOTICE_SECONDS / 2
