"""What a client needs of a queue: each transport has one such post."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from spot_work import message
from spot_work.errors import WorkError
from spot_work.message import Message
from spot_work.pending import Pending

log: Final = logging.getLogger("spot_work")


class Post(Protocol):
    """Sends the requests of a `Pending` and brings their answers to it."""

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request that this transport can never carry."""
        ...

    def send(self, identity: str) -> None:
        """Send a request, and again until the broker has it or it is ended. Returns at once."""
        ...

    def withdraw(self, identity: str) -> None:
        """Tell the workers, where there is a way, that nobody waits for a request any more."""
        ...

    def close(self) -> None:
        """Close, and leave nothing behind."""
        ...


def deliver(pending: Pending, queue: str, received: Message) -> None:
    """End a request by the answer that has come; one that cannot be read is said and left."""
    try:
        answer = message.read_reply(received)
    except ValueError as error:
        log.error("%s: an answer cannot be read: %s", queue, error)
        return
    pending.answered(answer.id, WorkError(answer.failed) if answer.failed else None, answer.value)
