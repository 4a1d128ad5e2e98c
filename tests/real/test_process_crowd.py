"""Many workers that are processes, killed and drained: on RabbitMQ, a hostile SQS, a cluster in bad days."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from packages.broker_plays import cluster_days, crowd
from packages.broker_plays.rabbit_cluster import may_have_own_network
from packages.broker_plays.workers import Processes
from packages.faulty_sqs import FaultySqs
from packages.rabbitmq import RabbitServer


# After its restart RabbitMQ 3.10.8 sometimes elects no leader for the reply queue: 4 of 28 runs hung.
@pytest.mark.soak
def test_nothing_is_lost_and_no_repeat_goes_unmarked(broker: RabbitServer, tmp_path: Path) -> None:
    crowd.check(crowd.play(broker, Processes(tmp_path), 2000, workers=3, losses=8, seed=5))


@pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")
@pytest.mark.parametrize(
    ("requests", "workers", "losses"), [(80, 2, 3), pytest.param(400, 3, 8, marks=pytest.mark.soak)]
)
def test_nothing_is_lost_on_an_sqs_at_its_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: int, workers: int, losses: int
) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with FaultySqs(crowd.QUEUE.name, tries=crowd.QUEUE.max_deliveries) as sqs:
        for name, value in sqs.environment.items():
            monkeypatch.setenv(name, value)
        outcome = crowd.play(sqs, Processes(tmp_path), requests, workers=workers, losses=losses, seed=15)
        assert not sqs.texts(f"{crowd.QUEUE.name}-dead")
    assert (outcome.lost, outcome.wrong, outcome.unmarked_duplicates) == (0, 0, 0), outcome
    assert outcome.drains_failed == 0, outcome
    assert sqs.duplicates > 0
    assert outcome.runs_repeated > 0  # it was hostile, or nothing was shown


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
