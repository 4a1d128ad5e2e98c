"""What worker and client call of SQS is what the stack lets them call, and nothing else."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from infra.iam import sqs_statements
from infra.iam.sqs_statements import SqsArns
from infra.iam.statement import Statement
from infra.scope import Scope
from spot_work import Queue, Worker, message
from spot_work.pending import Pending
from spot_work.sqs import answers, reader
from spot_work.sqs.post import SqsPost
from spot_work.sqs.reader import SqsSource
from tests.spot_work.hostile_sqs import ACCOUNT, REGION, HostileSqs
from tests.waiting import PATIENCE

ARNS = SqsArns("queue", "dead", "answers")


class Recorder:
    """A client that notes which operation was made on which kind of queue."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.made: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        def call(**given: Any) -> Any:
            on = given.get("QueueUrl") or given.get("QueueName") or ""
            kind = "answers" if "-answers-" in on else "dead" if on.endswith("-dead") else "queue"
            action = "".join(word.capitalize() for word in name.removesuffix("_batch").split("_"))
            # A list of queues knows no resource.
            self.made.add((f"sqs:{action}", "*" if action == "ListQueues" else kind))
            return getattr(self._client, name)(**given)

        return call


def granted(statements: list[Statement]) -> set[tuple[str, str]]:
    return {(action, str(on)) for one in statements for action in one.actions for on in one.resources}


def test_worker_and_client_need_all_that_they_may_do_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setattr(reader, "_POLL_SECONDS", 1)
    monkeypatch.setattr(answers, "KEEP_EVERY", 0.2)
    with HostileSqs(visibility=10, share=0.0) as sqs:
        asking, working = Recorder(sqs.client()), Recorder(sqs.client())
        lost = answers.make(sqs.client(), "ocr")
        sqs.client().tag_queue(QueueUrl=lost, Tags={"spot-work:alive": "1"})
        pending, done = Pending(), threading.Event()
        post = SqsPost(sqs.url, Queue("ocr"), pending, client=asking)
        worker = Worker(SqsSource(sqs.url, Queue("ocr"), 2, client=working), _work)
        thread = threading.Thread(target=worker.run)
        thread.start()
        _ask(post, pending, "r1", done)
        assert done.wait(PATIENCE)
        url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
        sqs.client().send_message(QueueUrl=url, MessageBody="bad")  # nobody waits: it is buried
        until = threading.Event()
        while not (
            sqs.texts("ocr-dead")
            and ("sqs:ChangeMessageVisibility", "queue") in working.made
            and {"sqs:TagQueue", "sqs:ListQueues"} <= {action for action, _ in asking.made}
        ):
            assert not until.wait(0.05)
        worker.drain()
        thread.join(PATIENCE)
        post.close()
    scope = Scope("dev", REGION, ACCOUNT, "aws")
    assert working.made == granted(sqs_statements.worker(ARNS))
    assert asking.made == granted(sqs_statements.caller(scope, ARNS))


def _work(value: Any) -> Any:
    if value == b"bad":
        raise ValueError(value)
    threading.Event().wait(4.0)  # longer than a third of the visibility timeout
    return value


def _ask(post: SqsPost, pending: Pending, identity: str, done: threading.Event) -> None:

    answer: Future[Any] = Future()
    answer.add_done_callback(lambda _: done.set())
    pending.add(message.request("ask", identity, "", 0.0, 1e12, again=False), answer, 1e12)
    post.send(identity)
