"""Workers as processes on a server that plays SQS at its worst: killed, drained, and the server is away."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spot_work import Client
from tests.real import crowd
from tests.real.stable import Processes
from tests.spot_work.faulty_sqs import FaultySqs
from tests.waiting import TIMEOUT_SECONDS

VISIBILITY_SECONDS, HOLD_SECONDS = 2, 5
HOLDING_WORKER = f"""
import ctypes, sys
from spot_work import serve
from spot_work.sqs import consumer
consumer._MIN_VISIBILITY_SECONDS = {VISIBILITY_SECONDS}
serve(ctypes.PyDLL(None).sleep, "ocr", sys.argv[1])  # in C, with the interpreter lock
"""


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


@pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")
def test_a_request_stays_hidden_while_its_function_holds_the_interpreter_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with FaultySqs(visibility=VISIBILITY_SECONDS, share=0.0) as sqs:
        for name, value in sqs.environment.items():
            monkeypatch.setenv(name, value)
        boto, url = sqs.client(), sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]

        def counts() -> tuple[int, int]:
            names = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
            attributes = boto.get_queue_attributes(QueueUrl=url, AttributeNames=[*names])["Attributes"]
            return int(attributes[names[0]]), int(attributes[names[1]])

        with (
            subprocess.Popen([sys.executable, "-c", HOLDING_WORKER, sqs.url]) as worker,
            Client(sqs.url, "ocr") as client,
        ):
            try:
                future, seen = client.submit(HOLD_SECONDS, TIMEOUT_SECONDS), []
                while not future.done():
                    seen.append(counts())
                    time.sleep(0.1)
                assert future.result() == 0  # slept to the end
            finally:
                worker.kill()
    since_taken = seen[seen.index((0, 1)) :]
    assert len(since_taken) > 1
    assert {visible for visible, _ in since_taken} == {0}
