"""The same worker and client on SQS, which delivers twice, in any order, fewer than asked, and fails."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot_work import (
    BrokerRefusedError,
    Client,
    HandBack,
    Queue,
    Request,
    Worker,
    WorkError,
    message,
    transports,
)
from spot_work.sqs import answers, reader, wire
from spot_work.sqs.in_flight import Shelf
from spot_work.sqs.reader import SqsSource
from tests.spot_work.hostile_sqs import ACCOUNT, REGION, HostileSqs
from tests.spot_work.test_message import NOW, VALUES
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileSqs]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with HostileSqs(tries=8) as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double


@pytest.fixture
def at_work(sqs: HostileSqs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    """Workers in threads of this process."""
    monkeypatch.setattr(reader, "_POLL_SECONDS", 1)  # a drain waits for the last poll
    begun: list[tuple[Worker, threading.Thread]] = []

    def begin(function: Callable[[Any], Any], prefetch: int = 4, **more: Any) -> Worker:
        worker = Worker(transports.source(sqs.url, Queue("ocr"), prefetch), function, **more)
        thread = threading.Thread(target=worker.run)
        thread.start()
        begun.append((worker, thread))
        return worker

    yield begin
    for worker, _ in begun:
        worker.drain()
    for _, thread in begun:
        thread.join(PATIENCE)


def test_everybody_gets_an_answer_and_whoever_runs_again_knows(
    sqs: HostileSqs, at_work: Callable[..., Worker]
) -> None:
    firsts: Counter[str] = Counter()

    def double(request: Request) -> int:
        firsts[request.id] += not request.is_repeat
        return 2 * int(request.value)

    for _ in range(2):
        at_work(double, requests=True)
    with Client(sqs.url, "ocr") as client:
        asked = [client.submit(number, PATIENCE) for number in range(60)]
        assert [one.result() for one in asked] == [2 * number for number in range(60)]
    assert max(firsts.values()) == 1
    assert sqs.queues() == {"ocr", "ocr-dead"}  # the client has left nothing behind
    until(lambda: not sqs.texts("ocr"))


def test_a_drained_worker_hands_back_what_it_has_not_begun(
    sqs: HostileSqs, at_work: Callable[..., Worker]
) -> None:
    sqs.share = 0.0  # else a message is hidden for a while after its call has failed
    begun, go = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        begun.set()
        go.wait(PATIENCE)
        return -value

    first = at_work(slow)
    with Client(sqs.url, "ocr") as client:
        asked = [client.submit(number, PATIENCE) for number in range(4)]
        assert begun.wait(PATIENCE)
        first.drain()
        go.set()
        at_work(abs)
        results = [one.result() for one in asked]
    assert sorted(map(abs, results)) == list(range(4))
    assert first.done == 1


def test_a_failure_is_an_answer_and_without_a_reader_it_is_buried(
    sqs: HostileSqs, at_work: Callable[..., Worker]
) -> None:
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.share = 0.0
    sqs.client().send_message(QueueUrl=url, MessageBody="scan 7")  # of somebody else
    at_work(lambda value: 1 / 0)
    with Client(sqs.url, "ocr") as client, pytest.raises(WorkError, match="ZeroDivisionError"):
        client.request(1)
    until(lambda: sqs.texts("ocr-dead") == ["scan 7"])
    until(lambda: not sqs.texts("ocr"))


def test_what_kills_its_workers_ends_among_the_dead(sqs: HostileSqs, at_work: Callable[..., Worker]) -> None:

    tries = []

    def refuse(request: Request) -> None:
        tries.append(request.tries)
        raise HandBack

    sqs.share = 0.0
    url = sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"]
    sqs.client().send_message(QueueUrl=url, MessageBody="scan 7")
    at_work(refuse, requests=True)
    until(lambda: sqs.texts("ocr-dead") == ["scan 7"])
    assert len(set(tries)) == len(tries)  # a delivery that lay too long is a try, and none that was begun
    assert set(tries) <= set(range(1, 9))


def test_what_has_expired_is_deleted_and_not_run(sqs: HostileSqs, at_work: Callable[..., Worker]) -> None:
    ran: list[Any] = []
    with Client(sqs.url, "ocr") as client:
        late = client.submit("late", timeout=0.5)
        with pytest.raises(TimeoutError):
            late.result()
        until(lambda: sqs.texts("ocr") == ['"late"'])
        at_work(lambda value: ran.append(value) or value)
        assert client.request("in time") == "in time"
        until(lambda: not sqs.texts("ocr"))
    assert ran == ["in time"]


def test_what_is_too_large_is_said_at_once_and_an_answer_in_its_place(
    sqs: HostileSqs, at_work: Callable[..., Worker]
) -> None:
    at_work(lambda value: b"x" * value)
    with Client(sqs.url, "ocr") as client:
        with pytest.raises(ValueError, match="allowed: 1048576 in SQS, bytes as base64"):
            client.submit(b"x" * 786_433)
        assert client.request(700_000) == b"x" * 700_000
        with pytest.raises(WorkError, match=r"an answer of .* bytes, allowed: 1048576"):
            client.request(800_000)


def test_a_client_whose_queue_of_answers_is_gone_asks_again(
    sqs: HostileSqs, at_work: Callable[..., Worker]
) -> None:
    with Client(sqs.url, "ocr") as client:
        asked = client.submit(7, PATIENCE)
        until(lambda: sqs.texts("ocr"))
        [lost] = sqs.queues() - {"ocr", "ocr-dead"}
        sqs.share = 0.0
        sqs.client().delete_queue(QueueUrl=sqs.client().get_queue_url(QueueName=lost)["QueueUrl"])
        at_work(str)
        assert asked.result() == "7"


@pytest.mark.parametrize(("refused", "left"), [(2, 0), (3, 1)])
def test_a_client_that_ends_removes_its_queue_in_three_tries(
    sqs: HostileSqs, caplog: pytest.LogCaptureFixture, refused: int, left: int
) -> None:
    sqs.share = 0.0
    with Client(sqs.url, "ocr") as client:
        client.submit(7, PATIENCE)
        until(lambda: sqs.texts("ocr"))
        sqs.refuse("delete_queue", refused)
    assert len(sqs.queues()) == 2 + left
    assert ("is left behind: " in caplog.text) == bool(left)


def test_a_queue_whose_removal_was_not_heard_of_is_not_left_behind(
    sqs: HostileSqs, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.share = 0.0
    with Client(sqs.url, "ocr") as client:
        client.submit(7, PATIENCE)
        until(lambda: sqs.texts("ocr"))
        sqs.carry_out_unheard("delete_queue")
    assert sqs.queues() == {"ocr", "ocr-dead"}
    assert "is left behind: " not in caplog.text


def test_queues_that_lost_clients_left_are_removed_and_no_others(
    sqs: HostileSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs.share = 0.0
    client = sqs.client()
    monkeypatch.setattr(answers, "_now", lambda: str(int(time.time()) - 4000))
    answers.make(client, "ocr")
    monkeypatch.undo()
    alive = answers.make(client, "ocr")
    client.create_queue(QueueName="ocr-answers-of-a-person")
    assert answers.sweep(client, "ocr") == 1
    assert sqs.queues() == {"ocr", "ocr-dead", "ocr-answers-of-a-person", alive.rpartition("/")[2]}


@pytest.mark.parametrize("name", ["nobodys", "ocr-dead"])
def test_a_queue_that_is_not_there_or_has_no_dead_letters_is_refused(sqs: HostileSqs, name: str) -> None:
    sqs.share = 0.0
    ours = transports.source(sqs.url, Queue(name), 1)
    with pytest.raises(BrokerRefusedError, match=name):
        ours.take(60)


def test_nobody_there_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**keys, "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    ours = SqsSource(f"sqs://{REGION}", Queue("ocr"), 1, give_up_after=0.1)
    with pytest.raises(ConnectionError, match="ocr: not reached for"):
        ours.take(60)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqs://", "ocr"),
        (f"sqs://{REGION}/12", "ocr"),
        (f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/ocr", "ocr"),
        (f"sqs://{REGION}/{ACCOUNT}", "ocr.fifo"),
        (f"sqs://{REGION}/{ACCOUNT}", "o" * 56),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str, name: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        transports.source(url, Queue(name), 1)


class Extender:
    """A client whose batch of extensions ends as it is told."""

    def __init__(self, code: str = "") -> None:
        self.code = code
        self.receipts: list[str] = []
        self.called = threading.Semaphore(0)

    def change_message_visibility_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        self.receipts += [one["ReceiptHandle"] for one in Entries]
        self.called.release()
        ids = [{"Id": one["Id"], "SenderFault": True, "Code": self.code} for one in Entries]
        return {"Failed": ids} if self.code else {"Successful": ids}


def delivery(receipt: str) -> dict[str, Any]:
    return {"MessageId": "m1", "ReceiptHandle": receipt, "Body": "x"}


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    shelf = Shelf(request.param, "ocr")
    shelf.open("url", 1)
    yield shelf
    shelf.close()


@pytest.mark.parametrize("shelf", [Extender()], indirect=True)
def test_what_is_held_stays_ours_beyond_the_queues_timeout(shelf: Shelf) -> None:
    held = shelf.put(delivery("r1"))
    assert held is not None
    first = held.until
    until(lambda: held.until > first + 1)
    assert shelf.is_ours(held)


@pytest.mark.parametrize(
    "shelf",
    [Extender("MessageNotInflight"), Extender("AWS.SimpleQueueService.ReceiptHandleIsInvalid")],
    indirect=True,
)
def test_what_others_see_is_not_ours(shelf: Shelf) -> None:
    held = shelf.put(delivery("r1"))
    assert held is not None
    until(lambda: held.is_lost)
    assert not shelf.is_ours(held)
    assert shelf.put(delivery("r2")) is not None  # a later delivery is another matter


@pytest.mark.parametrize("shelf", [Extender()], indirect=True)
def test_a_second_delivery_of_what_is_here_is_no_second_request(shelf: Shelf) -> None:
    held = shelf.put(delivery("r1"))
    assert held is not None
    assert shelf.put(delivery("r2")) is None
    assert held.receipt == "r2"


@given(VALUES)
def test_what_is_asked_arrives_and_what_is_answered_too(value: Any) -> None:
    def carried(one: message.Message) -> message.Message:
        entry = wire.entry(one)
        assert entry["MessageBody"].isascii()
        assert len(entry["MessageAttributes"]) <= 10
        return wire.read({"Body": entry["MessageBody"], "MessageAttributes": entry["MessageAttributes"]})

    asked = message.request(value, "r1", "https://answers", NOW, NOW + 30, again=True)
    assert carried(asked) == asked
    request = message.read_request(carried(asked), 3, NOW)
    for failed in ("", "no image"):
        told = message.reply(request, value, failed)
        assert carried(told) == told


@given(st.lists(st.integers(1, wire.LARGEST), max_size=40))
def test_calls_are_as_large_as_sqs_takes_and_leave_nothing_out(sizes: list[int]) -> None:
    entries = [(str(n), {"MessageBody": "x" * size}) for n, size in enumerate(sizes)]
    calls = list(wire.calls(entries))
    assert [one["Id"] for call in calls for one in call] == [key for key, _ in entries]
    for call in calls:
        assert 1 <= len(call) <= 10
        assert sum(map(wire.size, call)) <= wire.LARGEST


def test_boto3_is_imported_for_sqs_only() -> None:
    import subprocess
    import sys

    paths = os.pathsep.join(sys.path)
    code = (
        "import spot_work, spot_work.client, sys; sys.exit('boto3' in sys.modules or 'pika' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": paths})
