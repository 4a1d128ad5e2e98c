"""Worker and client on an SQS that redelivers, reorders, returns short polls and fails."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from faulty_sqs import ACCOUNT, REGION, FaultySqs
from hypothesis import given
from hypothesis import strategies as st

from spot_work import BrokerRefusedError, Client, Queue, Request, Requeue, Worker, WorkError, transports
from spot_work.queue.consumer import Ack, Delivery
from spot_work.request import message
from spot_work.sqs import consumer, reply_queue, wire
from spot_work.sqs.acknowledger import Acknowledger
from spot_work.sqs.consumer import SqsConsumer
from spot_work.sqs.in_flight import VisibilityExtender
from spot_work.watchdog.supervisor import Watchdog
from support.values import NOW, VALUES
from support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultySqs]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with FaultySqs(tries=8) as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double


@pytest.fixture
def at_work(sqs: FaultySqs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    """Workers in threads of this process."""
    monkeypatch.setattr(consumer, "_POLL_SECONDS", 1)  # a drain waits for the last poll
    workers: list[tuple[Worker, threading.Thread]] = []

    def start(function: Callable[[Any], Any], prefetch: int = 4, **options: Any) -> Worker:
        worker = Worker(transports.consumer(sqs.url, Queue("ocr"), prefetch), function, **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        workers.append((worker, thread))
        return worker

    yield start
    for worker, _ in workers:
        worker.drain()
    for _, thread in workers:
        thread.join(TIMEOUT_SECONDS)


def test_each_request_gets_its_reply_and_repeats_are_marked(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    unmarked_runs: Counter[str] = Counter()

    def double(request: Request) -> int:
        unmarked_runs[request.id] += not request.is_repeat
        return 2 * int(request.value)

    for _ in range(2):
        at_work(double, requests=True)
    with Client(sqs.url, "ocr") as client:
        futures = [client.submit(number, TIMEOUT_SECONDS) for number in range(60)]
        assert [future.result() for future in futures] == [2 * number for number in range(60)]
    assert max(unmarked_runs.values()) == 1
    assert sqs.queues() == {"ocr", "ocr-dead"}  # the client has deleted its reply queue
    wait_until(lambda: not sqs.texts("ocr"))


def test_a_request_that_is_too_large_for_its_queue_fails_alone(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": "262144"})
    at_work(len)
    with Client(sqs.url, "ocr") as client:
        large, *small = [client.submit(bytes(size), 30) for size in (300_000, 1, 2)]
        assert [future.result() for future in small] == [1, 2]
        with pytest.raises(WorkError, match="262144 bytes"):
            large.result()


def test_a_request_that_may_have_been_stored_is_sent_again_marked(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    calls: list[AWSPreparedRequest] = []

    def fail_first(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        calls.append(request)  # its response is lost: SQS may have stored it
        return AWSResponse(request.url, 500, {}, Mock(stream=list)) if len(calls) == 1 else None

    sqs.share = 0.0
    at_work(lambda request: request.is_repeat, requests=True)
    with Client(sqs.url, "ocr") as client:
        events = client._publisher._client.meta.events  # type: ignore[attr-defined]
        events.register("before-send.sqs.SendMessageBatch", fail_first)
        assert client.request(1) is True
    assert len(calls) == 2


def test_a_message_is_deleted_unrun_only_once_its_reply_is_sent() -> None:
    requests = SqsConsumer(f"sqs://{REGION}", Queue("ocr"), 1, client=Mock())  # which it cannot open
    in_flight = requests._extender.add(delivery("r1"))
    assert in_flight is not None
    requests.ack([Ack(Delivery(Request("1", 1, reply_to="replies"), in_flight))])
    assert not requests._completed_ids
    requests._acknowledger.on_completed(in_flight.id)
    assert [*requests._completed_ids] == [in_flight.id]


HELPERS = [(SqsConsumer, "_on_message"), (VisibilityExtender, "_apply"), (Acknowledger, "_execute")]


@pytest.mark.parametrize(("owner", "name"), HELPERS)
def test_an_error_in_a_helper_thread_ends_the_worker_or_it_goes_on(
    sqs: FaultySqs, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def broken(*_: object) -> None:
        raised.set()
        raise LookupError("a mistake")

    raised, ended = threading.Event(), []
    monkeypatch.setattr(consumer, "_MIN_VISIBILITY_SECONDS", 1)
    monkeypatch.setattr(consumer, "_POLL_SECONDS", 1)
    monkeypatch.setattr(owner, name, broken)
    sqs.share = 0.0
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    for _ in range(4):
        sqs.client().send_message(QueueUrl=url, MessageBody="x")
    runs: list[object] = []

    def run(value: object) -> None:
        runs.append(value)
        raised.wait(2.0)  # until its timeout was extended

    worker = Worker(transports.consumer(sqs.url, Queue("ocr"), 1), run)

    def work() -> None:
        try:
            worker.run()
        except RuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: ended or len(runs) >= 4)  # with room for one in flight: each has left
    worker.drain()
    thread.join(TIMEOUT_SECONDS)
    assert not ended or "has ended: LookupError" in ended[0]


def test_a_drained_worker_requeues_what_has_not_started(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    sqs.share = 0.0  # a failed call would delay the redelivery
    started, go = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        started.set()
        go.wait(TIMEOUT_SECONDS)
        return -value

    first = at_work(slow)
    with Client(sqs.url, "ocr") as client:
        futures = [client.submit(number, TIMEOUT_SECONDS) for number in range(4)]
        assert started.wait(TIMEOUT_SECONDS)
        first.drain()
        go.set()
        at_work(abs)
        results = [future.result() for future in futures]
    assert sorted(map(abs, results)) == list(range(4))
    assert first.completed_count == 1


def test_a_failure_is_the_reply_and_without_reply_to_a_dead_letter(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.share = 0.0
    sqs.client().send_message(QueueUrl=url, MessageBody="scan 7")  # of another sender
    at_work(lambda value: 1 / 0)
    with Client(sqs.url, "ocr") as client, pytest.raises(WorkError, match="ZeroDivisionError"):
        client.request(1)
    wait_until(lambda: sqs.texts("ocr-dead") == ["scan 7"])
    wait_until(lambda: not sqs.texts("ocr"))


def test_a_request_is_dead_lettered_after_the_maximum_deliveries(
    sqs: FaultySqs, at_work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spot_work.worker._MAX_REQUEUE_SECONDS", 0.0)
    counts = []

    def refuse(request: Request) -> None:
        counts.append(request.delivery_count)
        raise Requeue

    sqs.share = 0.0
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().send_message(QueueUrl=url, MessageBody="scan 7")
    at_work(refuse, requests=True)
    wait_until(lambda: sqs.texts("ocr-dead") == ["scan 7"])
    assert len(set(counts)) == len(counts)  # a delivery that timed out counts, and was not run
    assert set(counts) <= set(range(1, 9))


def test_an_expired_request_is_deleted_and_not_run(sqs: FaultySqs, at_work: Callable[..., Worker]) -> None:
    ran: list[Any] = []
    with Client(sqs.url, "ocr") as client:
        for timeout in (0.5, 2.0, 8.0, 32.0):
            late = client.submit("late", timeout=timeout)
            with pytest.raises(TimeoutError):
                late.result()
            if sqs.texts("ocr"):  # on a busy machine a request may expire before it is sent
                break
        assert {*sqs.texts("ocr")} == {'"late"'}
        at_work(lambda value: ran.append(value) or value)
        assert client.request("in time") == "in time"
        wait_until(lambda: not sqs.texts("ocr"))
    assert ran == ["in time"]


def test_a_request_above_the_maximum_size_is_rejected_and_such_a_reply_is_an_error(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    at_work(lambda value: b"x" * value)
    with Client(sqs.url, "ocr") as client:
        with pytest.raises(ValueError, match="up to 1048576 bytes in SQS, with bytes as base64"):
            client.submit(b"x" * 786_433)
        assert client.request(700_000) == b"x" * 700_000
        with pytest.raises(WorkError, match=r"the reply has .* bytes, more than the maximum, 1048576"):
            client.request(800_000)


def test_a_client_replaces_its_deleted_reply_queue(sqs: FaultySqs, at_work: Callable[..., Worker]) -> None:
    with Client(sqs.url, "ocr") as client:
        future = client.submit(7, TIMEOUT_SECONDS)
        wait_until(lambda: sqs.texts("ocr"))
        [reply_queue_name] = sqs.queues() - {"ocr", "ocr-dead"}
        sqs.share = 0.0
        sqs.client().delete_queue(QueueUrl=sqs.client().get_queue_url(QueueName=reply_queue_name)["QueueUrl"])
        at_work(str)
        assert future.result() == "7"


@pytest.mark.parametrize(("failures", "remaining"), [(2, 0), (3, 1)])
def test_close_deletes_the_reply_queue_in_three_attempts(
    sqs: FaultySqs, caplog: pytest.LogCaptureFixture, failures: int, remaining: int
) -> None:
    sqs.share = 0.0
    with Client(sqs.url, "ocr") as client:
        client.submit(7, TIMEOUT_SECONDS)
        wait_until(lambda: sqs.texts("ocr"))
        sqs.fail_next("delete_queue", failures)
    assert len(sqs.queues()) == 2 + remaining
    assert ("reply queue not deleted: " in caplog.text) == bool(remaining)


def test_a_lost_response_to_the_deletion_is_a_success(
    sqs: FaultySqs, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.share = 0.0
    with Client(sqs.url, "ocr") as client:
        client.submit(7, TIMEOUT_SECONDS)
        wait_until(lambda: sqs.texts("ocr"))
        sqs.lose_response("delete_queue")
    assert sqs.queues() == {"ocr", "ocr-dead"}
    assert "reply queue not deleted: " not in caplog.text


def test_only_abandoned_reply_queues_are_deleted(sqs: FaultySqs, monkeypatch: pytest.MonkeyPatch) -> None:
    sqs.share = 0.0
    client = sqs.client()
    monkeypatch.setattr(reply_queue, "_now", lambda: str(int(time.time()) - 4000))
    reply_queue.create(client, "ocr")
    monkeypatch.undo()
    alive = reply_queue.create(client, "ocr")
    client.create_queue(QueueName="ocr-answers-of-a-person")
    assert reply_queue.delete_abandoned(client, "ocr") == 1
    assert sqs.queues() == {"ocr", "ocr-dead", "ocr-answers-of-a-person", alive.rpartition("/")[2]}


@pytest.mark.parametrize("name", ["missing", "ocr-dead"])
def test_a_missing_queue_or_one_without_dead_letters_is_refused(sqs: FaultySqs, name: str) -> None:
    sqs.share = 0.0
    requests = transports.consumer(sqs.url, Queue(name), 1)
    with pytest.raises(BrokerRefusedError, match=name):
        requests.receive(60)


def test_an_unreachable_endpoint_ends_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**keys, "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    requests = SqsConsumer(f"sqs://{REGION}", Queue("ocr"), 1, max_outage_seconds=0.1)
    with pytest.raises(ConnectionError, match="ocr: unreachable for"):
        requests.receive(60)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqs://", "ocr"),
        (f"sqs://{REGION}/12", "ocr"),
        (f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/ocr", "ocr"),
        (f"sqs://{REGION}/{ACCOUNT}", "ocr.fifo"),
        (f"sqs://{REGION}/{ACCOUNT}", "o" * 81),
    ],
)
def test_an_invalid_address_is_rejected(url: str, name: str) -> None:
    with pytest.raises(ValueError, match=", not "):
        transports.consumer(url, Queue(name), 1)


SNS = {"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:us-east-1:1:t", "Message": "page 7"}
CELERY = {
    "body": base64.b64encode(json.dumps([[7], {}, {"chord": None}]).encode()).decode(),
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {"task": "ocr.read", "id": "0f"},
    "properties": {"body_encoding": "base64", "delivery_tag": "1"},
}
FOREIGN = {
    "boto3": json.dumps({"page": 7}),
    "SNS": json.dumps(SNS),
    # kombu encodes the whole message once more (``kombu/transport/SQS.py``, ``_put``: ``base64encode``).
    "Celery": base64.b64encode(json.dumps(CELERY).encode()).decode(),
    "a text": "page 7 – naïve",
}


@pytest.mark.parametrize("sender", FOREIGN)
def test_a_message_of_another_sender_reaches_the_function_as_its_bytes(
    sqs: FaultySqs, at_work: Callable[..., Worker], sender: str
) -> None:
    received: list[Request] = []
    sqs.share = 0.0
    attribute = {"trace": {"DataType": "String", "StringValue": "their own"}}
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().send_message(QueueUrl=url, MessageBody=FOREIGN[sender], MessageAttributes=attribute)
    at_work(received.append, requests=True)
    wait_until(lambda: received and not sqs.texts("ocr"))
    [request] = received
    assert request.value == FOREIGN[sender].encode()
    assert request.id
    assert (request.deadline, request.reply_to) == (None, "")
    assert not sqs.texts("ocr-dead")
    assert sqs.queues() == {"ocr", "ocr-dead"}


def test_a_failing_message_of_another_sender_is_a_dead_letter(
    sqs: FaultySqs, at_work: Callable[..., Worker]
) -> None:
    def refuse(body: bytes) -> None:
        raise ValueError(f"{len(body)} bytes")

    sqs.share = 0.0
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().send_message(QueueUrl=url, MessageBody=FOREIGN["SNS"])
    at_work(refuse)
    wait_until(lambda: sqs.texts("ocr-dead") == [FOREIGN["SNS"]])


@pytest.mark.parametrize("length", [1, 55, 56, 80])
def test_the_name_of_a_reply_queue_fits_sqs(length: int) -> None:
    prefix = reply_queue.prefix("q" * length)
    assert len(prefix) + 16 <= 80
    assert prefix != reply_queue.prefix("q" * (length - 1) + "r")


class ExtendingClient:
    """A client whose extensions fail with ``code``; an empty code: they succeed."""

    def __init__(self, code: str = "") -> None:
        self.code = code
        self.receipts: list[str] = []
        self.called = threading.Semaphore(0)

    def change_message_visibility_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        self.receipts += [entry["ReceiptHandle"] for entry in Entries]
        self.called.release()
        ids = [{"Id": entry["Id"], "SenderFault": True, "Code": self.code} for entry in Entries]
        return {"Failed": ids} if self.code else {"Successful": ids}


def delivery(receipt: str) -> dict[str, Any]:
    return {"MessageId": "m1", "ReceiptHandle": receipt, "Body": "x"}


@pytest.fixture
def extender(request: pytest.FixtureRequest) -> Iterator[VisibilityExtender]:
    extender = VisibilityExtender(request.param, "ocr", pytest.fail)
    extender.open("url", 1)
    yield extender
    extender.close()


@pytest.mark.parametrize("extender", [ExtendingClient()], indirect=True)
def test_a_message_stays_hidden_beyond_the_visibility_timeout(extender: VisibilityExtender) -> None:
    message_ = extender.add(delivery("r1"))
    assert message_ is not None
    first = message_.hidden_until
    wait_until(lambda: message_.hidden_until > first + 1)
    assert extender.is_hidden(message_)


@pytest.mark.parametrize(
    "extender",
    [ExtendingClient("MessageNotInflight"), ExtendingClient("AWS.SimpleQueueService.ReceiptHandleIsInvalid")],
    indirect=True,
)
def test_a_message_that_cannot_be_extended_is_not_hidden(extender: VisibilityExtender) -> None:
    message_ = extender.add(delivery("r1"))
    assert message_ is not None
    wait_until(lambda: message_.is_lost)
    assert not extender.is_hidden(message_)
    assert extender.add(delivery("r2")) is not None  # a later delivery is in flight again


@pytest.mark.parametrize("extender", [ExtendingClient()], indirect=True)
def test_a_redelivery_of_an_in_flight_message_updates_its_receipt(extender: VisibilityExtender) -> None:
    message_ = extender.add(delivery("r1"))
    assert message_ is not None
    assert extender.add(delivery("r2")) is None
    assert message_.receipt == "r2"


def test_the_process_that_extends_is_replaced_and_says_what_is_lost(sqs: FaultySqs) -> None:
    sqs.share = 0.0
    client, watchdog = sqs.client(), Watchdog()
    url = client.get_queue_url(QueueName="ocr")["QueueUrl"]
    for body in "ab":
        client.send_message(QueueUrl=url, MessageBody=body)
    relay = partial(watchdog.relay, "spot_work.sqs.relay", sqs.url)
    extender = VisibilityExtender(None, "ocr", pytest.fail, relay)
    extender.open(url, 3)
    try:
        first, second = (
            extender.add(client.receive_message(QueueUrl=url, VisibilityTimeout=60)["Messages"][0])
            for _ in range(2)
        )
        assert first is not None
        assert second is not None
        assert watchdog._process is not None
        watchdog._process.kill()
        client.delete_message(QueueUrl=url, ReceiptHandle=first.receipt)
        hidden_until = second.hidden_until
        wait_until(lambda: second.hidden_until > hidden_until and first.is_lost)
        assert extender.is_hidden(second)
        assert not extender.is_hidden(first)
    finally:
        extender.close()
        watchdog.close()


@given(VALUES)
def test_requests_and_replies_survive_the_round_trip(value: Any) -> None:
    def round_trip(sent: message.Message) -> message.Message:
        entry = wire.to_entry(sent)
        assert entry["MessageBody"].isascii()
        assert len(entry["MessageAttributes"]) <= 10
        return wire.read({"Body": entry["MessageBody"], "MessageAttributes": entry["MessageAttributes"]})

    sent = message.request(value, "r1", "https://replies", NOW, NOW + 30, is_resend=True)
    assert round_trip(sent) == sent
    request = message.read_request(round_trip(sent), 3)
    for error in ("", "no image"):
        reply = message.reply(request, value, error)
        assert round_trip(reply) == reply


@given(st.lists(st.integers(1, wire.MAX_BYTES), max_size=40))
def test_batches_hold_all_entries_within_the_limits_of_sqs(sizes: list[int]) -> None:
    entries = [(str(n), {"MessageBody": "x" * size}) for n, size in enumerate(sizes)]
    batches = list(wire.batches(entries))
    assert [entry["Id"] for batch in batches for entry in batch] == [key for key, _ in entries]
    for batch in batches:
        assert 1 <= len(batch) <= 10
        assert sum(map(wire.size, batch)) <= wire.MAX_BYTES
