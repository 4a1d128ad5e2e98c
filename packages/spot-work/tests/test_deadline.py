"""Requests that cannot meet their deadline are refused, with a time to retry; no other is."""

from __future__ import annotations

import json
import pickle
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties

from spot_work import Batch, Client, ExpiredError, Overflow, OverloadedError, Request, Worker, WorkError
from spot_work.agent import Agent
from spot_work.queue.consumer import Delivery
from spot_work.queue.publisher import resolve_reply
from spot_work.rabbitmq import versions
from spot_work.rabbitmq import wire as amqp
from spot_work.request import message
from spot_work.request.deadline import QueueDelay, RunTimes, WaitEstimate, lateness, retry_after
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests
from spot_work.sqs import wire as sqs
from support.consumers import FakeConsumer, reply_values


def request(name: str, *, left: float | None, waited: float = 0.0, **fields: Any) -> Request:
    """Return a request with ``left`` seconds until its deadline that was sent ``waited`` seconds ago."""
    now = time.time()
    deadline = None if left is None else now + left
    return Request(name, name, reply_to="replies", sent_at=now - waited, deadline=deadline, **fields)


@pytest.mark.parametrize(
    ("sent_at", "deadline", "run_seconds", "late"),
    [
        (90.0, None, 5.0, None),  # no deadline
        (90.0, 99.5, 0.0, 0.5),  # over
        (None, 99.5, 0.0, 0.5),
        (90.0, 105.0, 5.0, None),  # just in time
        (90.0, 104.0, 5.0, 1.0),  # even the shortest batch ends later
        (96.0, 104.0, 5.0, None),  # it has waited for less than a batch: it is not late for its wait
        (None, 104.0, 5.0, None),
    ],
)
def test_a_request_is_late_if_no_batch_could_end_in_time(
    sent_at: float | None, deadline: float | None, run_seconds: float, late: float | None
) -> None:
    assert lateness(sent_at, deadline, 100.0, run_seconds) == late


def test_a_runs_time_is_the_shortest_of_the_last_batches() -> None:
    runs = RunTimes()
    assert runs.shortest == 0.0
    for seconds in (30.0, 0.5, *[2.0] * 7):
        runs.record(seconds)
    assert runs.shortest == 0.5
    runs.record(2.0)
    assert runs.shortest == 2.0


def test_a_reported_wait_passes_by_itself() -> None:
    now = [1000.0]
    waits = WaitEstimate(lambda: now[0])
    assert waits.lateness("normal", 0.1) is None  # nothing is known
    waits.record("normal", QueueDelay(wait_seconds=20.0, run_seconds=2.0))
    assert waits.lateness("normal", 10.0) == 12.0
    assert waits.lateness("high", 10.0) is None
    now[0] += 12.0
    assert waits.lateness("normal", 10.0) is None
    waits.record("normal", QueueDelay(wait_seconds=0.0, run_seconds=60.0))
    assert waits.lateness("normal", 10.0) is None  # it does not wait: only the worker knows what a run takes


@given(st.floats(0, 1e4), st.floats(0, 1e3), st.floats(0, 1e4))
def test_after_the_time_to_retry_a_client_sends_again(wait: float, run: float, timeout: float) -> None:
    now = [0.0]
    waits = WaitEstimate(lambda: now[0])
    waits.record("normal", QueueDelay(wait, run))
    if (late := waits.lateness("normal", timeout)) is not None:
        now[0] += min(retry_after(late), wait) + 1e-6
        assert waits.lateness("normal", timeout) is None


def test_what_is_late_is_refused_and_not_run() -> None:
    ran: list[Any] = []
    consumer = FakeConsumer(
        request("over", left=-3.0, waited=10.0), request("fine", left=30.0), request("none", left=None)
    )
    worker = consumer.run(lambda value: ran.append(value) or value)
    assert ran == ["fine", "none"]
    refused = consumer.replies["over"]
    assert refused.retry_after == pytest.approx(3.0, abs=1.0)
    assert "retry in 3 s" in refused.error
    assert (worker.completed_count, worker.failed_count, worker.refused_count) == (2, 0, 1)


def test_no_request_begins_that_even_a_short_batch_would_end_too_late() -> None:
    consumer = FakeConsumer(request("waited", left=5.0, waited=60.0), request("new", left=5.0, waited=1.0))
    worker = consumer.worker = Worker(consumer, str)  # type: ignore[arg-type]
    worker._run_times.record(20.0)
    worker.run()
    assert reply_values(consumer) == {"waited": None, "new": "new"}
    assert consumer.replies["waited"].retry_after == pytest.approx(15.0, abs=2.0)
    assert worker.refused_count == 1


def test_a_deadline_that_passes_while_a_failed_batch_is_repeated_is_over() -> None:
    runs: list[list[str]] = []

    def read(values: list[str]) -> list[str]:
        runs.append(values)
        time.sleep(1.2)
        raise ValueError("one of these")

    consumer = FakeConsumer(request("a", left=30.0), request("b", left=1.0))
    worker = consumer.run(read, Batch(2, 1.0))
    assert runs == [["a", "b"], ["a"]]
    assert consumer.replies["b"].retry_after is not None
    assert (worker.completed_count, worker.refused_count) == (1, 1)


def test_an_overflow_function_runs_nothing_that_is_over() -> None:
    late = request("a", left=-1.0, waited=60.0)
    worker = Worker(FakeConsumer(), len, overflow=Overflow(pytest.fail, 30.0))  # type: ignore[arg-type]
    assert worker._overflows(Delivery(late, 0))
    worker.drain()
    worker.run()
    assert worker.refused_count == 1


def test_replies_report_the_wait_of_first_deliveries() -> None:
    sent: dict[str, Message] = {}

    class Recorder(FakeConsumer):
        def ack(self, acks: Any) -> None:
            sent.update({ack.delivery.request.id: ack.reply for ack in acks})

    repeat = request("repeat", left=99.0, waited=20.0, is_repeat=True)
    Recorder(request("a", left=99.0, waited=5.0), repeat, request("over", left=-1.0, waited=30.0)).run(str)
    assert sent["a"].delay is not None
    assert sent["a"].delay.wait_seconds == pytest.approx(5.0, abs=1.0)
    assert sent["repeat"].delay is None  # it has waited on a worker that was lost
    assert sent["over"].delay is not None
    assert sent["over"].delay.wait_seconds == pytest.approx(30.0, abs=1.0)


def test_the_report_counts_refused_requests_apart(tmp_path: Path) -> None:
    agent = Agent(report_file=tmp_path / "tell.json")
    FakeConsumer(request("over", left=-1.0)).run(str, agent=agent)
    report = json.loads((tmp_path / "tell.json").read_text())
    assert (report["done"], report["failed"], report["refused"]) == (0, 0, 1)


@pytest.mark.parametrize("priority", ["normal", "high"])
def test_a_refusal_survives_both_transports(priority: Any) -> None:
    refused = message.refusal(
        request("r1", left=-1.0, priority=priority), retry_after=2.5, delay=QueueDelay(30.0, 0.25)
    )
    of_amqp = amqp.read(refused.body, amqp.properties(refused))
    assert of_amqp == refused
    entry = sqs.to_entry(refused)
    of_sqs = sqs.read({"Body": entry["MessageBody"], "MessageAttributes": entry["MessageAttributes"]})
    assert (of_sqs.retry_after, of_sqs.delay, of_sqs.body) == (2.5, QueueDelay(30.0, 0.25), refused.body)


class FakePublisher:
    """Sends nothing; `reply` resolves a request as a transport does."""

    def __init__(self, pending: PendingRequests) -> None:
        self.pending = pending
        self.sent: list[str] = []

    def check(self, message: Message) -> None: ...

    def send(self, request_id: str) -> None:
        self.sent.append(request_id)

    def cancel(self, request_id: str) -> None: ...

    def close(self) -> None: ...

    def reply(
        self, request_id: str, delay: QueueDelay, retry_after: float | None = None, age: float = 60.0
    ) -> None:
        """Reply after ``age`` seconds."""
        if (request := self.pending.get(request_id)) is not None:
            request.submitted_at -= age
        else:
            self.pending._expired[request_id] -= age
        sent = Message(request_id, b'"retry"', is_json=True, delay=delay)
        is_refused = retry_after is not None
        resolve_reply(self.pending, "ocr", sent._replace(retry_after=retry_after, is_error=is_refused))


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> list[FakePublisher]:
    made: list[FakePublisher] = []

    def make(url: str, queue: object, pending: PendingRequests) -> FakePublisher:
        made.append(FakePublisher(pending))
        return made[-1]

    monkeypatch.setattr("spot_work.transports.publisher", make)
    return made


def error_of(future: Future[Any]) -> OverloadedError:
    with pytest.raises(OverloadedError) as caught:
        future.result(0)
    return caught.value


def test_a_client_raises_one_error_for_both_refusals(publisher: list[FakePublisher]) -> None:
    with Client("amqp://any", "ocr") as client:
        by_worker = client.submit(1, timeout=10.0)
        publisher[0].reply(publisher[0].sent[0], QueueDelay(30.0, 2.0), retry_after=22.0)
        error = error_of(by_worker)
        assert str(error) == "ocr: refused by a worker, the queue's wait is too long, retry in 22 s"
        assert error.retry_after == 22.0
        client.submit(0, timeout=60.0)
        here = error_of(client.submit(2, timeout=10.0))
        assert "ocr: not sent" in str(here)
        assert here.retry_after == pytest.approx(22.0, abs=1.0)
        client.submit(3, timeout=60.0)  # it can wait
        assert (len(publisher[0].sent), client.refused_count) == (3, 1)
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.retry_after) == (str(error), 22.0)
        assert not isinstance(error, ExpiredError)
        assert isinstance(error, WorkError)


def test_a_reply_that_is_too_late_still_reports_the_wait(publisher: list[FakePublisher]) -> None:
    with Client("amqp://any", "ocr") as client:
        with pytest.raises(ExpiredError):
            client.request(1, timeout=0.01)
        assert isinstance(publisher[0].pending._expired[publisher[0].sent[0]], float)  # not its body
        publisher[0].reply(publisher[0].sent[0], QueueDelay(30.0, 0.0), retry_after=1.0)
        client.submit(2, timeout=60.0)
        error_of(client.submit(3, timeout=10.0))


def test_after_an_outage_one_request_without_others_asks_for_the_wait(publisher: list[FakePublisher]) -> None:
    with Client("amqp://any", "ocr") as client:
        client.submit(1, timeout=600.0)
        publisher[0].reply(publisher[0].sent[0], QueueDelay(60.0, 0.0))  # there was no worker
        asking = client.submit(2, timeout=5.0)
        error_of(client.submit(3, timeout=5.0))  # one only
        assert asking.cancel()
        error_of(client.submit(4, timeout=5.0))  # and only one for each report
        client.submit(5, timeout=600.0)
        publisher[0].reply(publisher[0].sent[-1], QueueDelay(0.0, 0.0), age=0.0)
        assert not client.submit(6, timeout=5.0).done()


def test_a_worker_with_a_fast_clock_stops_no_client(
    publisher: list[FakePublisher], caplog: pytest.LogCaptureFixture
) -> None:
    with Client("amqp://any", "ocr") as client:
        refused = client.submit(1, timeout=10.0)
        publisher[0].reply(publisher[0].sent[0], QueueDelay(3600.0, 3600.0), retry_after=3590.0, age=0.2)
        assert error_of(refused).retry_after <= 1.0
        assert "the clock of a worker is 3600 s fast" in caplog.text
        # At the most the wait that it has seen itself: with 30 s to wait the next one is sent.
        client.submit(2, timeout=10.0)
        publisher[0].reply(publisher[0].sent[1], QueueDelay(3600.0, 0.0), age=20.0)
        assert client.submit(3, timeout=30.0).running() is False
        assert len(publisher[0].sent) == 3
        error_of(client.submit(4, timeout=10.0))


def test_a_step_of_the_clock_moves_no_timeout(
    publisher: list[FakePublisher], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with Client("amqp://any", "ocr") as client:
        back, forward = client.submit(1, timeout=0.3), client.submit(2, timeout=60.0)
        for step in (-3600.0, 3600.0):
            monkeypatch.setattr("time.time", lambda step=step: now + step)
            assert isinstance(back.exception(10), ExpiredError)
        assert not forward.done()


def test_a_reply_without_a_request_reports_no_wait(publisher: list[FakePublisher]) -> None:
    with Client("amqp://any", "ocr") as client:
        unknown = Message("another's", b"1", is_json=True, delay=QueueDelay(3600.0, 1.0))
        resolve_reply(publisher[0].pending, "ocr", unknown)
        client.submit(1, timeout=10.0)
        assert client.unmatched_replies == 1
        assert len(publisher[0].sent) == 1


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e18])
def test_a_timeout_that_no_message_can_have_is_refused(
    publisher: list[FakePublisher], timeout: float
) -> None:
    with Client("amqp://any", "ocr") as client, pytest.raises(ValueError, match="less than 1e"):
        client.submit(1, timeout=timeout)


@pytest.mark.parametrize(
    ("text", "version", "has_priorities"),
    [("3.13.7", (3, 13), False), ("4.0.5", (4, 0), True), ("4.3.1", (4, 3), True), ("", None, False)],
)
def test_priorities_need_rabbitmq_4(text: str, version: Any, has_priorities: bool) -> None:
    assert versions.read({"version": text}) == version
    assert versions.has_priorities(version) is has_priorities


def test_a_high_priority_is_above_that_of_a_message_without_one() -> None:
    def sent(priority: Any) -> BasicProperties:
        return amqp.properties(message.request(1, "r1", "", 0.0, 1.0, is_resend=False, priority=priority))

    assert (sent("normal").priority, sent("high").priority) == (None, 5)  # 4 is the default
    assert [amqp.read(b"1", sent(name)).priority for name in message.PRIORITIES] == ["normal", "high"]


def test_sqs_has_no_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:9")
    with Client("sqs://eu-west-1", "ocr") as client:
        with pytest.raises(ValueError, match="priority must be 'normal', not 'high': SQS has no priorities"):
            client.submit(1, priority="high")
        with pytest.raises(ValueError, match="priority must be normal or high, not 'low'"):
            client.submit(1, priority="low")  # type: ignore[arg-type]
