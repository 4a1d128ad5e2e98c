"""Requests that wait for their answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from spot_work.message import Message


@dataclass
class Asked:
    """A request without an answer so far.

    ``via`` is what it was sent by last, in the words of the transport; ``is_kept``: the broker has it.
    """

    message: Message
    answer: Future[Any]
    deadline: float
    via: object = None
    is_kept: bool = False

    def addressed(self, answers: str) -> Message:
        """Return it as it goes out now; ``answers`` is where its answer shall go."""
        return replace(self.message, reply_to=answers, is_again=self.via is not None)


class Pending:
    """The open requests of a client, by their id; safe to use from many threads.

    Whoever takes a request out of the table ends it, so each is ended once.
    """

    def __init__(self) -> None:
        self._open: dict[str, Asked] = {}
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self.strays = 0
        """Answers that nobody waited for: second ones, and those that came too late."""

    def add(self, message: Message, answer: Future[Any], deadline: float) -> None:
        """Open a request; raises what `fail` was told."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._open[message.id] = Asked(message, answer, deadline)

    def get(self, identity: str) -> Asked | None:
        """Return a request; None for one that was ended."""
        return self._open.get(identity)

    def unkept(self, *, forgetting: bool = False) -> Iterator[str]:
        """Yield those of which the broker has not said that it has them; all, ``forgetting`` what it said."""
        with self._lock:
            for one in self._open.values() if forgetting else ():
                one.is_kept = False
            found = [identity for identity, one in self._open.items() if not one.is_kept]
        yield from found

    def late(self, now: float) -> Iterator[str]:
        """Yield those whose time is over."""
        with self._lock:
            found = [identity for identity, one in self._open.items() if one.deadline < now]
        yield from found

    def forget(self, identity: str) -> None:
        """Drop a request that its caller has cancelled."""
        with self._lock:
            self._open.pop(identity, None)

    def answered(self, identity: str, error: Exception | None, value: Any) -> None:
        """End a request by its answer."""
        self.strays += not self.settle(identity, error, value)

    def settle(self, identity: str, error: Exception | None, value: Any = None) -> bool:
        """End a request; tell whether it was still open."""
        with self._lock:
            one = self._open.pop(identity, None)
        if one is None or not one.answer.set_running_or_notify_cancel():
            return False
        if error is not None:
            one.answer.set_exception(error)
        else:
            one.answer.set_result(value)
        return True

    def fail(self, error: Exception) -> None:
        """End all of them, and refuse others from now on."""
        with self._lock:
            self._failure = self._failure or error
            left = list(self._open)
        for identity in left:
            self.settle(identity, error)
