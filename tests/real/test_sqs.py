"""Workers as processes on a server that plays SQS at its worst: killed, drained, and the server is away."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.real import crowd
from tests.real.stable import Processes
from tests.spot_work.faulty_sqs import FaultySqs


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")
def test_a_crowd_that_is_lost_and_drained_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
