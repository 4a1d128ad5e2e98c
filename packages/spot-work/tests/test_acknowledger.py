"""Settled messages leave the extender, which would otherwise extend and count them for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spot_work.queue.consumer import Ack, Delivery
from spot_work.request import message
from spot_work.request.message import Request
from spot_work.sqs.acknowledger import Acknowledger
from spot_work.sqs.in_flight import InFlightMessage, VisibilityExtender
from support.waiting import TIMEOUT_SECONDS, wait_until


class RecordingSqs:
    """Accepts all calls, but those of queues in ``errors``, and records them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.errors: dict[str, str] = {}

    def __getattr__(self, call: str) -> Callable[..., dict[str, Any]]:
        def record(QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            if Entries and QueueUrl in self.errors:
                raise ClientError({"Error": {"Code": self.errors[QueueUrl], "Message": "no"}}, call)
            if Entries:
                self.calls.append((f"{call} {QueueUrl}", [entry["Id"] for entry in Entries]))
            return {"Successful": Entries}

        return record


@pytest.mark.parametrize("code", ["KMS.AccessDeniedException", "KMS.ThrottlingException"])
def test_a_dead_letter_that_cannot_be_sent_holds_up_no_reply(code: str) -> None:
    sqs, completed, is_repeated = RecordingSqs(), list[str](), "Throttling" in code
    sqs.errors["dead"] = code
    extender = VisibilityExtender(sqs, "queue", pytest.fail)
    acknowledger = Acknowledger(sqs, extender, TIMEOUT_SECONDS, pytest.fail)
    acknowledger.on_completed = completed.append
    acknowledger.open("queue", "dead")
    bad, good = (extender.add({"MessageId": n, "ReceiptHandle": n, "Body": "7"}) for n in ("bad", "good"))
    assert bad is not None
    assert good is not None
    acknowledger.dead_letter(bad, "no image")
    wait_until(acknowledger._jobs.empty)
    reply(acknowledger, good)
    wait_until(lambda: "good" in completed, 10)
    sqs.errors = {"queue": code} if is_repeated else {}
    wait_until(lambda: len(completed) == 1 + is_repeated)  # else SQS delivers it again
    sqs.errors = {}
    acknowledger.close(TIMEOUT_SECONDS)
    assert completed[:2] == ["good", "bad"][: 1 + is_repeated]
    assert sum("send_message_batch dead" in call for call, _ in sqs.calls) == is_repeated  # one copy
    assert extender.wait_below(lambda: 1, threading.Event()) == 0


def reply(acknowledger: Acknowledger, in_flight: InFlightMessage) -> None:
    request = Request("request", None, reply_to="replies")
    acknowledger.ack([Ack(Delivery(request, in_flight), message.reply(request, 7))])


@pytest.mark.parametrize(
    ("settle", "calls"),
    [
        (lambda ack, message_: ack.delete([message_]), ["delete_message_batch queue"]),
        (lambda ack, message_: ack.requeue([message_]), ["change_message_visibility_batch queue"]),
        (
            lambda acknowledger, in_flight: acknowledger.dead_letter(in_flight, "no image"),
            ["send_message_batch dead", "delete_message_batch queue"],
        ),
        (reply, ["send_message_batch replies", "delete_message_batch queue"]),
    ],
    ids=["deleted", "requeued", "dead-lettered", "replied"],
)
def test_settled_messages_leave_the_extender(
    settle: Callable[[Acknowledger, InFlightMessage], None], calls: list[str]
) -> None:
    sqs, stop = RecordingSqs(), threading.Event()
    extender = VisibilityExtender(sqs, "queue", pytest.fail)
    acknowledger = Acknowledger(sqs, extender, TIMEOUT_SECONDS, pytest.fail)
    acknowledger.open("queue", "dead")
    in_flight, other = (
        extender.add({"MessageId": name, "ReceiptHandle": f"receipt of {name}", "Body": "7"}) for name in "ab"
    )
    assert in_flight is not None
    assert other is not None
    settle(acknowledger, in_flight)
    acknowledger.close(TIMEOUT_SECONDS)
    assert sqs.calls == [(call, ["a"]) for call in calls]
    assert extender.wait_below(lambda: 100, stop) == 1  # the other message
    redelivered = extender.add({"MessageId": "a", "ReceiptHandle": "another", "Body": "7"})
    assert redelivered is not None
