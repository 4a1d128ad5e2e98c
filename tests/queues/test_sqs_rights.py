"""The IAM statements for workers and clients allow exactly the SQS calls that they make."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from faulty_sqs import ACCOUNT, REGION, FaultySqs

from infra.iam import sqs_statements
from infra.iam.sqs_statements import SqsArns
from infra.iam.statement import Statement
from infra.scope import Scope
from spot_work import Queue, Worker
from spot_work.request import message
from spot_work.request.pending import PendingRequests
from spot_work.sqs import consumer, reply_queue
from spot_work.sqs.consumer import SqsConsumer
from spot_work.sqs.publisher import SqsPublisher
from tests.waiting import TIMEOUT_SECONDS

ARNS = SqsArns("queue", "dead", "answers")


class Recorder:
    """A client that records the actions called and the kind of queue of each."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.actions: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        def call(**kwargs: Any) -> Any:
            queue = kwargs.get("QueueUrl") or kwargs.get("QueueName") or ""
            kind = "answers" if "-answers-" in queue else "dead" if queue.endswith("-dead") else "queue"
            action = "".join(word.capitalize() for word in name.removesuffix("_batch").split("_"))
            # ListQueues supports no resource.
            self.actions.add((f"sqs:{action}", "*" if action == "ListQueues" else kind))
            return getattr(self._client, name)(**kwargs)

        return call


def granted(statements: list[Statement]) -> set[tuple[str, str]]:
    return {
        (action, str(resource))
        for statement in statements
        for action in statement.actions
        for resource in statement.resources
    }


def test_worker_and_client_make_exactly_the_allowed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setattr(consumer, "_POLL_SECONDS", 1)
    monkeypatch.setattr(reply_queue, "MARK_ALIVE_INTERVAL_SECONDS", 0.2)
    with FaultySqs(visibility=10, share=0.0) as sqs:
        client, worker_client = Recorder(sqs.client()), Recorder(sqs.client())
        abandoned = reply_queue.create(sqs.client(), "ocr")
        sqs.client().tag_queue(QueueUrl=abandoned, Tags={"spot-work:alive": "1"})
        pending, done = PendingRequests(), threading.Event()
        publisher = SqsPublisher(sqs.url, Queue("ocr"), pending, client=client)
        worker = Worker(SqsConsumer(sqs.url, Queue("ocr"), 2, client=worker_client), _work)
        thread = threading.Thread(target=worker.run)
        thread.start()
        _send(publisher, pending, "r1", done)
        assert done.wait(TIMEOUT_SECONDS)
        url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
        sqs.client().send_message(QueueUrl=url, MessageBody="bad")  # without reply_to: dead-lettered
        poll = threading.Event()
        while not (
            sqs.texts("ocr-dead")
            and ("sqs:ChangeMessageVisibility", "queue") in worker_client.actions
            and {"sqs:TagQueue", "sqs:ListQueues"} <= {action for action, _ in client.actions}
        ):
            assert not poll.wait(0.05)
        worker.drain()
        thread.join(TIMEOUT_SECONDS)
        publisher.close()
    scope = Scope("dev", REGION, ACCOUNT, "aws")
    assert worker_client.actions == granted(sqs_statements.worker(ARNS))
    assert client.actions == granted(sqs_statements.caller(scope, ARNS))


def _work(value: Any) -> Any:
    if value == b"bad":
        raise ValueError(value)
    threading.Event().wait(4.0)  # longer than a third of the visibility timeout
    return value


def _send(publisher: SqsPublisher, pending: PendingRequests, request_id: str, done: threading.Event) -> None:
    future: Future[Any] = Future()
    future.add_done_callback(lambda _: done.set())
    pending.add(message.request("request", request_id, "", 0.0, 1e12, is_resend=False), future, 1e12)
    publisher.send(request_id)
