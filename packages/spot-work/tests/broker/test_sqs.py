"""Workers on a server that plays SQS: as a process, and with what other programs send."""

from __future__ import annotations

import base64
import json
import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest
from faulty_sqs import FaultySqs

from spot_work import Batch, Client, Queue, Request, Worker, transports
from spot_work.sqs import consumer
from support.waiting import TIMEOUT_SECONDS, wait_until

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


CELERY = {
    "body": base64.b64encode(b'[[1], {}, {"callbacks": null}]').decode(),
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {"task": "tasks.add", "id": "8f1c", "retries": 0, "eta": None},
    "properties": {"correlation_id": "8f1c", "reply_to": "a-b", "body_encoding": "base64", "delivery_tag": 1},
}
SNS = {"Type": "Notification", "MessageId": "22b8", "TopicArn": "arn:aws:sns:x:1:t", "Message": '{"a": 1}'}
BODIES = [
    *(json.dumps(CELERY), base64.b64encode(json.dumps(CELERY).encode()).decode(), json.dumps(SNS)),
    *("x", " ", "{", "[" * 50_000, '"\ud7ff"', "\t\n\r \ufffd\U0010ffff", "1e999", "NaN", "-0", "9" * 5000),
    *("A" * 200_000, "===", "YQ", "YQ==", "é" * 1000, '{"a": {"a": 1, "a": 2}}', "null"),
]
TEXTS = [
    *("json", "bytes", "text", "again repeat failed", "1", "-1", "1e9", "9" * 400, "NaN", "٣", " ", "\ufffd"),
    *("../x", "a.fifo", "x" * 300, "no-such-queue", "https://example.com/1/q", "00-0-0-zz", "\t\n"),
]
NAMES = "id type reply-to sent deadline marks retry-after wait run reason".split()  # noqa: SIM905
NAMES = ["traceparent", "tracestate", "x.y-z_1", *(f"spot-{name}" for name in NAMES)]


FOREIGN, GOOD = 10, 10
"""Foreign messages of a round, and good ones for each."""


def foreign(chance: random.Random) -> dict[str, Any]:
    """Return what another program may send."""
    attributes: dict[str, Any] = {}
    for name in chance.sample(NAMES, chance.randrange(8)):
        kind = chance.choice(["String", "String.json", "Number", "Binary"])
        text = str(chance.randrange(-9, 10**18)) if kind == "Number" else chance.choice(TEXTS)
        value = {"BinaryValue": text.encode()} if kind == "Binary" else {"StringValue": text}
        attributes[name] = {"DataType": kind, **value}
    if chance.random() < 0.5:
        text = chance.choice(["json", "bytes"])
        attributes["spot-type"] = {"DataType": "String", "StringValue": text}
    return {"MessageBody": chance.choice(BODIES), "MessageAttributes": attributes}


@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")
def test_foreign_messages_cost_their_neighbours_nothing(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setattr(consumer, "_POLL_SECONDS", 1)  # a drain waits for the last poll
    chance, runs = random.Random(rounds), Counter[str]()

    def run(requests: list[Request]) -> list[Any]:
        runs.update(str(request.value) for request in requests)
        return [request.value for request in requests]

    with FaultySqs(tries=8, share=0.0) as sqs:
        for name, value in sqs.environment.items():
            monkeypatch.setenv(name, value)
        url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
        with Client(sqs.url, "ocr") as client:
            boto, goods = sqs.client(), range(GOOD * FOREIGN)
            source = transports.consumer(sqs.url, Queue("ocr"), 10)
            worker = Worker(source, run, Batch(10, 0.05), requests=True)
            thread = threading.Thread(target=worker.run)
            for round_ in range(rounds):  # moto looks through all messages for each
                futures = []
                for number in goods:
                    if number % GOOD == 0:
                        boto.send_message(QueueUrl=url, **foreign(chance))
                    futures.append(client.submit([round_, number], TIMEOUT_SECONDS))
                if round_ == 0:
                    thread.start()
                assert [future.result() for future in futures] == [[round_, number] for number in goods]
                wait_until(lambda: not sqs.texts("ocr"))
            assert client.request("after", TIMEOUT_SECONDS) == "after"
            worker.drain()
            thread.join(TIMEOUT_SECONDS)
        dead = sqs.texts("ocr-dead")
    assert 0 < len(dead) < FOREIGN * rounds
    assert set(dead) <= set(BODIES)
    assert worker.completed_count + worker.refused_count == (GOOD + 1) * FOREIGN * rounds + 1 - len(dead)
    assert {runs[str([round_, number])] for round_ in range(rounds) for number in goods} == {1}
