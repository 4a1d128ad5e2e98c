"""Settles in-flight messages in a separate thread, in batch calls."""

from __future__ import annotations

import logging
import queue
import threading
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
from spot_work.sqs.address import CALL_ERRORS, describe, is_not_found, is_permanent
from spot_work.sqs.in_flight import InFlightMessage, VisibilityExtender

log: Final = logging.getLogger("spot_work")

_MAX_JOBS_PER_ROUND: Final = 100
"""Maximum number of jobs that are combined into batch calls."""

_Entries = dict[str, dict[str, Any]]
"""Entries of batch calls by message id."""
_Job = Callable[["_Round"], None]


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

    Transient errors are retried for ``max_outage_seconds``. Permanent errors are logged: SQS redelivers the
    message after its visibility timeout, and finally moves it to the dead-letter queue.
    """

    def __init__(
        self, client: Any, extender: VisibilityExtender, max_outage_seconds: float, on_failure: OnFailure
    ) -> None:
        self._client = client
        self._on_failure = on_failure
        self._extender = extender
        self._max_outage_seconds = max_outage_seconds
        self._url = self._dead_letter_url = ""
        self._jobs: queue.SimpleQueue[tuple[InFlightMessage, _Job] | None] = queue.SimpleQueue()
        self._open_jobs = 0
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

    @property
    def open_jobs(self) -> int:
        """Number of jobs that are not done."""
        return self._open_jobs

    def close(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until all jobs are done, then stop."""
        with self._jobs_changed:
            self._jobs_changed.wait_for(lambda: self._open_jobs <= 0 or not self._url, timeout)
        self._stop.set()
        self._jobs.put(None)

    def _add(self, in_flight: InFlightMessage, job: _Job) -> None:
        with self._jobs_changed:
            self._open_jobs += 1
        self._jobs.put((in_flight, job))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < _MAX_JOBS_PER_ROUND and not self._jobs.empty():
                if (next_job := self._jobs.get()) is None:
                    return
                jobs.append(next_job)
            round_ = _Round()
            for in_flight, add in jobs:
                try:
                    add(round_)
                except Exception:  # it is redelivered; the others must still be settled
                    log.exception("message %s not settled", in_flight.id)
            try:
                self._execute(round_)
            except Exception:
                log.exception("messages not settled")
            self._extender.remove(in_flight for in_flight, _ in jobs)
            with self._jobs_changed:
                self._open_jobs -= len(jobs)
                self._jobs_changed.notify_all()

    def _execute(self, round_: _Round) -> None:
        sent: set[str] = set()
        for url, entries in round_.replies.items():
            sent |= self._call_until_done(self._client.send_message_batch, url, entries)
        dead = self._call_until_done(
            self._client.send_message_batch, self._dead_letter_url, round_.dead_letters
        )
        # One with both a reply and a copy, for its size, waits for both.
        sent = {id_ for id_ in sent if id_ not in round_.dead_letters or id_ in dead} | {
            id_ for id_ in dead if not any(id_ in entries for entries in round_.replies.values())
        }
        to_delete = [*round_.to_delete, *(round_.after_send[id_] for id_ in sent)]
        deletes = {in_flight.id: {"ReceiptHandle": in_flight.receipt} for in_flight in to_delete}
        self._call_until_done(self._client.delete_message_batch, self._url, deletes)
        requeues = {
            in_flight.id: {"ReceiptHandle": in_flight.receipt, "VisibilityTimeout": seconds}
            for in_flight, seconds in round_.to_requeue
        }
        self._call_until_done(self._client.change_message_visibility_batch, self._url, requeues)

    def _call_until_done(
        self, call: Callable[..., Any], url: str, entries: Mapping[str, dict[str, Any]]
    ) -> set[str]:
        """Repeat a call until each entry is done or refused; return the ids done or without a queue."""
        remaining, done, backoff = dict(entries), set[str](), Backoff()
        while remaining:
            error = ""
            for batch in list(wire.batches(remaining.items())):
                succeeded, refused, error = _call(call, url, batch)
                done |= succeeded
                for id_ in succeeded | refused:
                    del remaining[id_]
            if remaining:
                log.warning("%s: %d entries failed: %s; retrying", url, len(remaining), error)
                if self._stop.is_set() or backoff.total_seconds >= self._max_outage_seconds:
                    return done
                backoff.wait(self._stop)
        return done


def _call(call: Callable[..., Any], url: str, batch: list[dict[str, Any]]) -> tuple[set[str], set[str], str]:
    """Make one batch call; return the ids that succeeded, the ids refused for good, and the error."""
    ids = {entry["Id"] for entry in batch}
    try:
        response = call(QueueUrl=url, Entries=batch)
    except CALL_ERRORS as error:
        if is_not_found(error):
            return ids, set(), ""  # the reply queue of a client that is closed
        if is_permanent(error):
            log.error("%s: %s", url, describe(error))
            return set(), ids, ""
        return set(), set(), describe(error)
    failed = response.get("Failed", ())
    errors = "; ".join(f"{entry['Code']} {entry.get('Message', '')}".strip() for entry in failed)
    refused = {entry["Id"] for entry in failed if entry.get("SenderFault")}
    if refused:
        log.warning("%s: %s", url, errors)
    return {entry["Id"] for entry in response.get("Successful", ())}, refused, errors


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
