"""What becomes of received messages: answered, handed back, buried; in one thread, many in a call."""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from spot_work import message
from spot_work.message import Message, Request
from spot_work.queue_reader import Said
from spot_work.sqs import wire
from spot_work.sqs.address import TROUBLE, is_gone, is_refusal, words
from spot_work.sqs.in_flight import Held, Shelf
from spot_work.sqs.pause import Pause

log: Final = logging.getLogger("spot_work")

_AT_ONCE: Final = 100
"""Jobs that are looked at together, to fill calls."""

_Job = Callable[["_Round"], None]


class _Round:
    """What is to be done with some messages, by kind of call."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        """Entries by the queue that they go to and the id of the request's message."""
        self.dead: dict[str, dict[str, Any]] = {}
        self.delete: list[Held] = []
        self.back: list[Held] = []
        self.held: dict[str, Held] = {}
        """All of them, by id."""


class Settler:
    """Carries out what was decided on held messages, and takes them off the shelf.

    What SQS refuses for the moment is tried again for ``give_up_after`` seconds; what it refuses for good is
    said and left: the message comes back when its visibility timeout is over, to the dead-letter queue in
    the end.
    """

    def __init__(self, client: Any, shelf: Shelf, give_up_after: float) -> None:
        self._client = client
        self._shelf = shelf
        self._give_up_after = give_up_after
        self._url = self._dead_url = ""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._open = 0
        self._settled = threading.Condition()
        self._end = threading.Event()

    def open(self, url: str, dead_url: str) -> None:
        """Begin, with the URLs of the queue and of its dead-letter queue."""
        self._url, self._dead_url = url, dead_url
        threading.Thread(target=self._live, name="spot-work-settle", daemon=True).start()

    def say(self, answers: Sequence[Said]) -> None:
        """Send answers, and delete their requests; without an answer only that."""
        for said in answers:
            self._add(partial(_answer, said))

    def delete(self, held: Iterable[Held]) -> None:
        """Delete messages."""
        for one in held:
            self._add(partial(_delete, one))

    def hand_back(self, held: Iterable[Held]) -> None:
        """Let others see messages at once."""
        for one in held:
            self._add(partial(_back, one))

    def bury(self, held: Held) -> None:
        """Copy a message to the dead-letter queue, and delete it."""
        self._add(partial(_bury, held))

    def close(self, seconds: float) -> None:
        """Wait until all is carried out, so many seconds at most, and end."""
        with self._settled:
            self._settled.wait_for(lambda: self._open <= 0 or not self._url, seconds)
        self._end.set()
        self._jobs.put(None)

    def _add(self, job: _Job) -> None:
        with self._settled:
            self._open += 1
        self._jobs.put(job)

    def _live(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < _AT_ONCE and not self._jobs.empty():
                if (another := self._jobs.get()) is None:
                    return
                jobs.append(another)
            todo = _Round()
            for one in jobs:
                one(todo)
            try:
                self._carry_out(todo)
            except Exception:  # a message that cannot be settled comes back; the others are settled
                log.exception("answers could not be given")
            with self._settled:
                self._open -= len(jobs)
                self._settled.notify_all()

    def _carry_out(self, todo: _Round) -> None:
        done: set[str] = set()
        for place, entries in todo.answers.items():
            done |= self._until_done(self._client.send_message_batch, place, entries)
        done |= self._until_done(self._client.send_message_batch, self._dead_url, todo.dead)
        settled = [*todo.delete, *(todo.held[one] for one in done)]
        receipts = {one.id: {"ReceiptHandle": one.receipt} for one in settled}
        self._until_done(self._client.delete_message_batch, self._url, receipts)
        seen = {one.id: {"ReceiptHandle": one.receipt, "VisibilityTimeout": 0} for one in todo.back}
        self._until_done(self._client.change_message_visibility_batch, self._url, seen)
        self._shelf.remove([*todo.delete, *todo.back, *todo.held.values()])

    def _until_done(
        self, call: Callable[..., Any], url: str, entries: Mapping[str, dict[str, Any]]
    ) -> set[str]:
        """Make calls until each entry is done or refused; return those done, or whose queue is gone."""
        left, done, pause = dict(entries), set[str](), Pause()
        while left:
            trouble = ""
            for some in list(wire.calls(left.items())):
                good, bad, trouble = _called(call, url, some)
                done |= good
                for key in good | bad:
                    del left[key]
            if left:
                log.warning("%s: %d not done: %s; again in a moment", url, len(left), trouble)
                if self._end.is_set() or pause.total >= self._give_up_after:
                    return done
                pause.wait(self._end)
        return done


def _called(call: Callable[..., Any], url: str, some: list[dict[str, Any]]) -> tuple[set[str], set[str], str]:
    """Make one call; return which entries are done, which never will be, and what went wrong."""
    every = {one["Id"] for one in some}
    try:
        answer = call(QueueUrl=url, Entries=some)
    except TROUBLE as error:
        if is_gone(error):
            return every, set(), ""  # of a client that has gone: nobody waits
        if is_refusal(error):
            log.error("%s: %s", url, words(error))
            return set(), every, ""
        return set(), set(), words(error)
    failed = answer.get("Failed", ())
    told = "; ".join(f"{one['Code']} {one.get('Message', '')}".strip() for one in failed)
    never = {one["Id"] for one in failed if one.get("SenderFault")}
    if never:
        log.warning("%s: %s", url, told)
    return {one["Id"] for one in answer.get("Successful", ())}, never, told


def _delete(held: Held, todo: _Round) -> None:
    todo.delete.append(held)


def _back(held: Held, todo: _Round) -> None:
    todo.back.append(held)


def _answer(said: Said, todo: _Round) -> None:
    held, request = said.taken.delivery, said.taken.request
    if said.answer is None or not request.reply_to:
        todo.delete.append(held)
    else:
        todo.held[held.id] = held
        todo.answers[request.reply_to][held.id] = _that_fits(request, said.answer)


def _bury(held: Held, todo: _Round) -> None:
    todo.held[held.id] = held
    todo.dead[held.id] = wire.copy(held.received)


def _that_fits(request: Request, answer: Message) -> dict[str, Any]:
    entry = wire.entry(answer)
    if (size := wire.size(entry)) <= wire.LARGEST:
        return entry
    return wire.entry(
        message.reply(request, None, f"ValueError: an answer of {size} bytes, allowed: {wire.LARGEST}")
    )
