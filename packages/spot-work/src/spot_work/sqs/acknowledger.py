"""Settles in-flight messages in a separate thread, in batch calls."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from spot_work.queue import threads
from spot_work.queue.backoff import Backoff
from spot_work.queue.consumer import Ack
from spot_work.queue.threads import OnFailure
from spot_work.request import message
from spot_work.sqs import wire
from spot_work.sqs.address import CALL_ERRORS, call_batch, describe, is_not_found, is_permanent
from spot_work.sqs.in_flight import InFlightMessage, VisibilityExtender

log: Final = logging.getLogger("spot_work")

_MAX_JOBS_PER_ROUND: Final = 100
"""Maximum number of jobs that are combined into batch calls."""

_Entries = dict[str, dict[str, Any]]
"""Entries of batch calls by message id."""
_Job = Callable[["_Round"], None]
_Jobs = list[tuple[InFlightMessage, _Job]]


class _Round:
    """The combined calls of some jobs."""

    def __init__(self) -> None:
        self.replies: dict[str, _Entries] = defaultdict(dict)
        """Replies to send, by the URL of the reply queue."""
        self.dead_letters: _Entries = {}
        self.to_delete: list[InFlightMessage] = []
        self.to_requeue: list[tuple[InFlightMessage, int]] = []
        """Messages with the seconds until they are visible."""
        self.after_send: dict[str, InFlightMessage] = {}
        """Messages to delete once their reply or copy is sent, by id."""


class Acknowledger:
    """Sends replies, deletes, requeues and dead-letters messages, and removes them from the extender.

    Transient errors are retried for ``max_outage_seconds``, while other messages are settled. Permanent
    errors are logged: SQS redelivers the message after its visibility timeout, and finally moves it to the
    dead-letter queue. ``on_completed`` is called with the id of each message that is to be deleted.
    """

    def __init__(
        self, client: Any, extender: VisibilityExtender, max_outage_seconds: float, on_failure: OnFailure
    ) -> None:
        self.on_completed: Callable[[str], object] = lambda _: None
        self._client = client
        self._on_failure = on_failure
        self._extender = extender
        self._max_outage_seconds = max_outage_seconds
        self._url = self._dead_letter_url = ""
        self._jobs: queue.SimpleQueue[tuple[InFlightMessage, _Job] | None] = queue.SimpleQueue()
        self.open_jobs = 0
        """Number of jobs that are not done."""
        self._jobs_changed = threading.Condition()
        self._stop = threading.Event()

    def open(self, url: str, dead_letter_url: str) -> None:
        """Start, with the URLs of the queue and of its dead-letter queue."""
        self._url, self._dead_letter_url = url, dead_letter_url
        threads.start("spot-work-ack", self._run, self._on_failure)

    def ack(self, acks: Sequence[Ack]) -> None:
        """Send replies and delete their requests; without a reply only delete."""
        for ack in acks:
            self._add(ack.delivery.handle, partial(_add_ack, ack))

    def delete(self, messages: Iterable[InFlightMessage]) -> None:
        """Delete messages."""
        for in_flight in messages:
            self._add(in_flight, partial(_add_delete, in_flight))

    def requeue(self, messages: Iterable[InFlightMessage], delay_seconds: int = 0) -> None:
        """Make messages visible to other workers after a delay."""
        for in_flight in messages:
            self._add(in_flight, partial(_add_requeue, in_flight, delay_seconds))

    def dead_letter(self, in_flight: InFlightMessage, reason: str) -> None:
        """Copy a message to the dead-letter queue with the reason, then delete it."""
        self._add(in_flight, partial(_add_dead_letter, in_flight, reason))

    def close(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until all jobs are done, then stop."""
        with self._jobs_changed:
            self._jobs_changed.wait_for(lambda: self.open_jobs <= 0 or not self._url, timeout)
        self._stop.set()
        self._jobs.put(None)

    def _add(self, in_flight: InFlightMessage, job: _Job) -> None:
        with self._jobs_changed:
            self.open_jobs += 1
        self._jobs.put((in_flight, job))

    def _run(self) -> None:
        backoff, failed, due_at = Backoff(), _Jobs(), 0.0
        while not self._stop.is_set():
            jobs = self._next_jobs(due_at if failed else None)
            if failed and time.monotonic() >= due_at:
                jobs, failed = [*failed, *jobs], []
            again = self._settle(jobs) if jobs else []
            if again and backoff.total_seconds >= self._max_outage_seconds:
                again = []  # they are redelivered
            elif again:
                due_at = due_at if failed else time.monotonic() + backoff.next_delay()
                failed += again
            elif not failed:
                backoff.reset()
            waiting = {in_flight.id for in_flight, _ in again}
            self._extender.remove(in_flight for in_flight, _ in jobs if in_flight.id not in waiting)
            with self._jobs_changed:
                self.open_jobs -= len(jobs) - len(again)
                self._jobs_changed.notify_all()

    def _next_jobs(self, due_at: float | None) -> _Jobs:
        """Return the jobs of the next round, none if ``due_at`` comes first or this is closed."""
        jobs = _Jobs()
        with contextlib.suppress(queue.Empty):
            job = self._jobs.get(timeout=None if due_at is None else max(due_at - time.monotonic(), 0.0))
            while job is not None:
                jobs.append(job)
                job = self._jobs.get_nowait() if len(jobs) < _MAX_JOBS_PER_ROUND else None
        return jobs

    def _settle(self, jobs: _Jobs) -> _Jobs:
        """Make the calls of jobs once; return those to do again."""
        round_ = _Round()
        for in_flight, add in jobs:
            try:
                add(round_)
            except Exception:  # it is redelivered; the others must still be settled
                log.exception("message %s not settled", in_flight.id)
        try:
            repeat, delete = self._execute(round_)
        except Exception:
            log.exception("messages not settled")
            return []
        again = [(sent, job) for sent, job in jobs if sent.id in repeat | delete]
        return [(sent, partial(_add_delete, sent) if sent.id in delete else job) for sent, job in again]

    def _execute(self, round_: _Round) -> tuple[set[str], set[str]]:
        """Make the calls of a round; return the ids to repeat, and those that have only to be deleted."""
        unsent, refused = set[str](), set[str]()
        for url, entries in (*round_.replies.items(), (self._dead_letter_url, round_.dead_letters)):
            done, failed = self._call(self._client.send_message_batch, url, entries)
            unsent, refused = unsent | failed, refused | (entries.keys() - done - failed)
        # One with both a reply and a copy, for its size, waits for both.
        sent = [sent for id_, sent in round_.after_send.items() if id_ not in unsent | refused]
        deletes = {sent.id: {"ReceiptHandle": sent.receipt} for sent in (*round_.to_delete, *sent)}
        for id_ in deletes:
            self.on_completed(id_)
        _, undeleted = self._call(self._client.delete_message_batch, self._url, deletes)
        requeues = {
            in_flight.id: {"ReceiptHandle": in_flight.receipt, "VisibilityTimeout": seconds}
            for in_flight, seconds in round_.to_requeue
        }
        _, unchanged = self._call(self._client.change_message_visibility_batch, self._url, requeues)
        return unsent | unchanged, undeleted

    def _call(
        self, call: Callable[..., Any], url: str, entries: Mapping[str, dict[str, Any]]
    ) -> tuple[set[str], set[str]]:
        """Make a call for all entries; return the ids done or without a queue, and those to repeat."""
        done, failed = set[str](), set[str]()
        for batch in wire.batches(entries.items()):
            succeeded, again = _call(call, url, batch)
            done, failed = done | succeeded, failed | again
        return done, failed


def _call(call: Callable[..., Any], url: str, batch: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """Make one batch call; return the ids done, and those to repeat: not the ones refused for good."""
    ids = {entry["Id"] for entry in batch}
    try:
        response = call_batch(call, url, batch)
    except CALL_ERRORS as error:
        if is_not_found(error):
            return ids, set()  # the reply queue of a client that is closed
        log.warning("%s: %d entries failed: %s", url, len(ids), describe(error))
        return set(), set() if is_permanent(error) else ids
    if failed := response.get("Failed"):
        errors = "; ".join(f"{entry['Code']} {entry.get('Message', '')}".strip() for entry in failed)
        log.warning("%s: %d entries failed: %s", url, len(failed), errors)
    done = {entry["Id"] for entry in response.get("Successful", ())}
    return done, ids - done - {entry["Id"] for entry in failed or () if entry.get("SenderFault")}


def _add_delete(in_flight: InFlightMessage, round_: _Round) -> None:
    round_.to_delete.append(in_flight)


def _add_requeue(in_flight: InFlightMessage, delay_seconds: int, round_: _Round) -> None:
    round_.to_requeue.append((in_flight, delay_seconds))


def _add_ack(ack: Ack, round_: _Round) -> None:
    in_flight, request = ack.delivery.handle, ack.delivery.request
    if ack.reply is None or not request.reply_to:
        round_.to_delete.append(in_flight)
        return
    round_.after_send[in_flight.id] = in_flight
    entry = wire.to_entry(ack.reply)
    if (size := wire.size(entry)) > wire.MAX_BYTES:
        reason = f"the reply has {size} bytes, more than the maximum, {wire.MAX_BYTES}"
        log.error("request %s: %s", request.id, reason)
        round_.dead_letters[in_flight.id] = wire.copy(in_flight.received, reason)
        entry = wire.to_entry(message.reply(request, None, f"ValueError: {reason}"))
    round_.replies[request.reply_to][in_flight.id] = entry


def _add_dead_letter(in_flight: InFlightMessage, reason: str, round_: _Round) -> None:
    round_.after_send[in_flight.id] = in_flight
    round_.dead_letters[in_flight.id] = wire.copy(in_flight.received, reason)
