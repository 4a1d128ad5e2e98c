"""What is settled is off the shelf: there it would be extended, hidden from others and counted, for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from spot_work import message
from spot_work.message import Request
from spot_work.queue_reader import Said, Taken
from spot_work.sqs.in_flight import Held, Shelf
from spot_work.sqs.settler import Settler
from tests.waiting import PATIENCE


class Sqs:
    """Does all that it is asked, and writes it down."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def __getattr__(self, call: str) -> Callable[..., dict[str, Any]]:
        def done(QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            if Entries:
                self.asked.append((f"{call} {QueueUrl}", [one["Id"] for one in Entries]))
            return {"Successful": Entries}

        return done


def answer(settler: Settler, held: Held) -> None:
    request = Request("ask", None, reply_to="asker")
    settler.say([Said(Taken(request, held), message.reply(request, 7))])


@pytest.mark.parametrize(
    ("settle", "asked"),
    [
        (lambda settler, held: settler.delete([held]), ["delete_message_batch queue"]),
        (lambda settler, held: settler.hand_back([held]), ["change_message_visibility_batch queue"]),
        (lambda settler, held: settler.bury(held), ["send_message_batch dead", "delete_message_batch queue"]),
        (answer, ["send_message_batch asker", "delete_message_batch queue"]),
    ],
    ids=["deleted", "handed back", "buried", "answered"],
)
def test_what_is_settled_is_off_the_shelf(settle: Callable[[Settler, Held], None], asked: list[str]) -> None:
    sqs, still = Sqs(), threading.Event()
    shelf = Shelf(sqs, "queue")
    settler = Settler(sqs, shelf, give_up_after=PATIENCE)
    settler.open("queue", "dead")
    held, other = (
        shelf.put({"MessageId": name, "ReceiptHandle": f"receipt of {name}", "Body": "7"}) for name in "ab"
    )
    assert held is not None
    assert other is not None
    settle(settler, held)
    settler.close(PATIENCE)
    assert sqs.asked == [(call, ["a"]) for call in asked]
    assert shelf.wait_below(100, still) == 1  # the other is still held
    again = shelf.put({"MessageId": "a", "ReceiptHandle": "another", "Body": "7"})
    assert again is not None
