"""A service's workers, supervised by the agent: processes, containers with a device file; killed, drained."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_sqs import FaultySqs

from packages.broker_plays import cluster_days, crowd
from packages.broker_plays.rabbit_cluster import may_have_own_network
from packages.broker_plays.workers import NOTICE_SECONDS, Processes
from packages.rabbitmq import RabbitServer
from tests.real import containers, stable


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder below which ``docker`` is podman, with an image of the workers."""
    with containers.folder() as place, containers.podman(place):
        containers.take_in(containers.python_image(stable.code()), containers.PYTHON)
        yield place


def check(outcome: crowd.Outcome) -> None:
    assert (outcome.lost, outcome.wrong, outcome.unmarked_duplicates) == (0, 0, 0), outcome
    assert outcome.drains_failed == 0, outcome
    assert outcome.killed > 0
    assert outcome.drained > 0
    assert outcome.broker_restarts == 1


def test_nothing_is_lost_and_no_repeat_goes_unmarked(broker: RabbitServer, tmp_path: Path) -> None:
    check(crowd.play(broker, Processes(tmp_path), 2000, workers=3, losses=8, seed=5))


def test_nothing_is_lost_where_workers_are_containers(broker: RabbitServer, folder: Path) -> None:
    check(crowd.play(broker, stable.Containers(folder), 2000, workers=2, losses=4, seed=3))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")
def test_nothing_is_lost_on_an_sqs_at_its_worst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with FaultySqs(crowd.QUEUE.name, tries=crowd.QUEUE.max_deliveries) as sqs:
        for name, value in sqs.environment.items():
            monkeypatch.setenv(name, value)
        outcome = crowd.play(sqs, Processes(tmp_path), 400, workers=3, losses=8, seed=15)
        assert not sqs.texts(f"{crowd.QUEUE.name}-dead")
    assert (outcome.lost, outcome.wrong, outcome.unmarked_duplicates) == (0, 0, 0), outcome
    assert outcome.drains_failed == 0, outcome
    assert sqs.duplicates > 0
    assert outcome.runs_repeated > 0  # it was hostile, or nothing was shown


def test_a_worker_that_is_signalled_before_it_listens_ends(folder: Path) -> None:
    """The kernel drops a SIGTERM for a container's first process that has no handler yet."""
    worker = stable.Containers(folder).start(1000, ["-c", "import time; time.sleep(600)"], "amqp://nobody")
    running = ["docker", "ps", "--quiet", "--filter", "name=gpu-spot-1000"]
    crowd.wait_for(lambda: subprocess.check_output(running), lambda: "nothing")
    started_at = time.monotonic()
    worker.drain()
    worker.wait()
    assert time.monotonic() - started_at < NOTICE_SECONDS / 2


@pytest.mark.soak
def test_nothing_is_lost_on_bad_days() -> None:
    """One rolling restart, an alarm, cut logins and kills of workers."""
    if not may_have_own_network():
        pytest.skip("needs root, for a network namespace")
    days = cluster_days.run(cluster_days.Plan(), seconds=300)
    assert (days.lost, days.wrong, days.unmarked_duplicates) == (0, 0, 0), days
    assert days.clients_alive == cluster_days.CLIENTS
    assert (days.cluster_restarts, days.handshakes_cut, days.kills) == (1, 10, 4)
    assert days.alarm_done["memory"] > 0
