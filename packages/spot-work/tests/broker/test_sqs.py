"""A worker as a process on a server that plays SQS."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest
from faulty_sqs import FaultySqs

from spot_work import Client
from support.waiting import TIMEOUT_SECONDS

VISIBILITY_SECONDS, HOLD_SECONDS = 2, 5
HOLDING_WORKER = f"""
import ctypes, sys
from spot_work import serve
from spot_work.sqs import consumer
consumer._MIN_VISIBILITY_SECONDS = {VISIBILITY_SECONDS}
serve(ctypes.PyDLL(None).sleep, "ocr", sys.argv[1])  # in C, with the interpreter lock
"""


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
