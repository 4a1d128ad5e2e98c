"""The operator's commands on an SQS double: status, dead letters, sending them again."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError
from faulty_sqs import ACCOUNT, REGION, FaultySqs
from pika import BasicProperties

from spot_work import Client, Queue, Request, Requeue, Worker, WorkError, transports
from spot_work import __main__ as command
from spot_work.command.inspector import DeadLetter, QueueStatus
from spot_work.errors import BrokerRefusedError, QueueFullError
from spot_work.rabbitmq import wire as amqp
from spot_work.sqs import consumer, inspector
from spot_work.sqs.inspector import SqsInspector
from support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultySqs]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setattr(inspector, "_POLL_SECONDS", 0)
    monkeypatch.setattr(consumer, "_POLL_SECONDS", 1)
    with FaultySqs(tries=2, share=0.0) as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(command.URL, double.url)
        monkeypatch.setenv(command.QUEUE, "ocr")
        yield double


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    def call(*arguments: str) -> tuple[int, Any, str]:
        status = command.main(arguments)
        captured = capsys.readouterr()
        is_json = "--json" in arguments and captured.out
        return status, json.loads(captured.out) if is_json else captured.out, captured.err

    return call


def send(sqs: FaultySqs, queue: str, body: str, **attributes: str) -> None:
    url = sqs.client().get_queue_url(QueueName=queue)["QueueUrl"]
    named = {name.replace("_", "-"): value for name, value in attributes.items()}
    typed = {name: {"DataType": "String", "StringValue": value} for name, value in named.items()}
    sqs.client().send_message(QueueUrl=url, MessageBody=body, MessageAttributes=typed)


def work_until(sqs: FaultySqs, function: Callable[[Any], Any], condition: Callable[[], Any]) -> None:
    worker = Worker(transports.consumer(sqs.url, Queue("ocr"), 2), function, requests=True)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(condition)
    finally:
        worker.drain()
        thread.join(TIMEOUT_SECONDS)


def test_status_counts_what_sqs_knows_and_calls_the_rest_unknown(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    for body in ("1", "2", "3"):
        send(sqs, "ocr", body)
    send(sqs, "ocr-dead", "4")
    sqs.client().receive_message(QueueUrl=sqs.client().get_queue_url(QueueName="ocr")["QueueUrl"])
    status, output, _ = run("status", "--json")
    assert (status, output) == (
        0,
        {
            **{"queue": "ocr", "waiting": 2, "in_work": 1, "dead_letters": 1},
            **{"consumers": None, "oldest_seconds": None},
        },
    )
    _, text, _ = run("status")
    assert text.splitlines() == [
        *("queue ocr", "  waiting       2", "  in work       1", "  consumers     unknown"),
        *("  oldest wait   unknown", "  dead letters  1"),
    ]


def test_a_listing_keeps_every_dead_letter_visible(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    before = time.time()
    send(sqs, "ocr-dead", "scan 7", spot_id="r7", spot_reason="ValueError: no\nimage\x1b[2J")
    for number in range(24):
        send(sqs, "ocr-dead", f"scan {number}")
    listed: list[dict[str, Any]] = []
    for _ in range(3):  # each time all of them
        status, output, _ = run("dead-letters", "--json")
        listed = output["dead_letters"]
        assert (status, len(listed)) == (0, 25)
    [letter] = [letter for letter in listed if letter["id"] == "r7"]
    assert (letter["size"], letter["reason"]) == (6, "ValueError: no\nimage\x1b[2J")
    assert before - 1 <= letter["time"] <= time.time() + 1
    _, text, _ = run("dead-letters")
    [line] = [line for line in text.splitlines() if line.startswith("r7")]
    assert "ValueError: no?image?[2J" in line  # a terminal obeys nothing of it
    assert sum("unknown" in line for line in text.splitlines()) == 24


def test_a_request_with_too_many_deliveries_is_named_so(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    def refuse(_: Request) -> None:
        raise Requeue

    send(sqs, "ocr", "poison")
    work_until(sqs, refuse, lambda: sqs.texts("ocr-dead") == ["poison"])
    _, output, _ = run("dead-letters", "--json")
    assert [(letter["reason"], letter["time"]) for letter in output["dead_letters"]] in (
        [("delivery limit", None)],
        [("", None)],  # a double without the attribute `DeadLetterQueueSourceArn`
    )


def test_a_resent_request_runs_as_a_repeat_without_its_deadline(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    expired = str(round((time.time() - 60) * 1000))
    of_request = {"spot_type": "json", "spot_reply_to": "https://gone", "spot_sent": "1"}
    send(sqs, "ocr-dead", "7", spot_id="r7", spot_deadline=expired, spot_reason="bad", **of_request)
    send(sqs, "ocr-dead", "8", spot_id="r8")
    status, text, _ = run("resend", "r7")
    assert (status, text.splitlines()) == (0, ["r7", "1 sent again"])
    assert sqs.texts("ocr-dead") == ["8"]
    ran: list[Request] = []
    work_until(sqs, ran.append, lambda: not sqs.texts("ocr"))
    [request] = ran
    assert (request.id, request.value, request.is_repeat) == ("r7", 7, True)
    assert (request.reply_to, request.deadline, request.age_seconds) == ("", None, -1.0)


def test_all_are_resent_and_an_unknown_id_is_an_error(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    for number in range(12):
        send(sqs, "ocr-dead", f"{number}", spot_id=f"r{number}")
    status, output, error = run("resend", "r3", "r99", "--json")
    assert (status, output["resent"]) == (1, ["r3"])
    assert "no dead letter r99" in output["error"]
    assert "no dead letter r99" in error
    assert run("resend", "--all")[0] == 0
    assert sqs.texts("ocr-dead") == []
    assert sorted(sqs.texts("ocr"), key=int) == [f"{number}" for number in range(12)]


def test_a_dead_letter_stays_until_its_request_is_confirmed(
    sqs: FaultySqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(sqs, "ocr-dead", "7", spot_id="r7")
    client, sent = sqs.client(), []

    def refuse(**request: Any) -> None:
        sent.append(request)
        raise ClientError({"Error": {"Code": "ServiceUnavailable", "Message": "try again"}}, "SendMessage")

    monkeypatch.setattr(client, "send_message", refuse)
    queue = SqsInspector(sqs.url, Queue("ocr"), client)
    with pytest.raises(ConnectionError, match="try again"):
        list(queue.resend(None))
    assert len(sent) == 1
    assert [letter.id for letter in queue.dead_letters()] == ["r7"]


def test_a_dead_letter_queue_with_dead_letters_of_its_own_is_refused(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    client = sqs.client()
    dead = client.get_queue_url(QueueName="ocr-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:ocr", "maxReceiveCount": 1}
    client.set_queue_attributes(QueueUrl=dead, Attributes={"RedrivePolicy": json.dumps(policy)})
    send(sqs, "ocr-dead", "7")
    status, _, error = run("dead-letters")
    assert (status, error) == (
        1,
        "spot-work: ocr-dead: it has a redrive policy; use a dead-letter queue without one\n",
    )
    assert sqs.texts("ocr-dead") == ["7"]


@pytest.mark.parametrize("name", ["status", "dead-letters"])
def test_a_caller_without_the_right_gets_one_line(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def deny(*_: object, **__: object) -> Any:
        class Denied:
            def __getattr__(self, call: str) -> Any:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"no {call}"}}, call)

        return Denied()

    monkeypatch.setattr("spot_work.sqs.address.Address.client", deny)
    status, text, error = run(name)
    assert (status, text) == (1, "")
    assert error.startswith("spot-work: ocr: ")
    assert error.count("\n") == 1
    assert "AccessDenied" in error


class FakeInspector:
    """An inspector of a queue that is full after one."""

    def status(self) -> QueueStatus:
        raise BrokerRefusedError("broker: ACCESS_REFUSED")

    def dead_letters(self) -> list[DeadLetter]:
        return []

    def resend(self, ids: Collection[str] | None) -> Iterator[str]:
        yield "r1"
        raise KeyboardInterrupt if ids else QueueFullError("ocr: the queue is full")

    def close(self) -> None: ...


def test_what_was_sent_before_an_error_is_listed(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "inspector", lambda *_: FakeInspector())
    assert run("resend", "--all") == (1, "r1\n1 sent again\n", "spot-work: ocr: the queue is full\n")
    assert run("resend", "r1", "r2")[2] == "spot-work: interrupted; the others stay\n"
    assert run("status") == (1, "", "spot-work: broker: ACCESS_REFUSED\n")
    assert run("dead-letters") == (0, "no dead letters\n", "")


@pytest.mark.parametrize(
    ("arguments", "url", "text"),
    [
        (["resend"], None, "name either ids or --all"),
        (["resend", "r1", "--all"], None, "name either ids or --all"),
        (["status"], "", "SPOT_WORK_URL is not set; set it to amqps://"),
        (["status"], "http://a", "must be amqps://"),
        (["status", "--queue", "ocr.fifo"], None, "not ocr.fifo"),
    ],
)
def test_an_invalid_argument_is_status_2(
    sqs: FaultySqs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    url: str | None,
    text: str,
) -> None:
    if url is not None:
        monkeypatch.setenv(command.URL, url)
    with pytest.raises(SystemExit) as exit_:
        command.main(arguments)
    assert exit_.value.code == 2
    assert text in capsys.readouterr().err


def test_a_failed_request_without_a_client_can_be_sent_until_it_succeeds(
    sqs: FaultySqs, run: Callable[..., tuple[int, Any, str]]
) -> None:
    is_mended, ran = threading.Event(), []

    def read(request: Request) -> None:
        if not is_mended.is_set():
            raise ValueError("no model")
        ran.append(request.value)

    send(sqs, "ocr", "scan 7")
    work_until(sqs, read, lambda: sqs.texts("ocr-dead"))
    _, output, _ = run("dead-letters", "--json")
    assert [letter["reason"] for letter in output["dead_letters"]] == ["ValueError: no model"]
    is_mended.set()
    assert run("resend", "--all")[0] == 0
    work_until(sqs, read, lambda: not sqs.texts("ocr"))
    assert ran == [b"scan 7"]


def test_a_failure_with_a_waiting_client_is_no_dead_letter(sqs: FaultySqs) -> None:
    worker = Worker(transports.consumer(sqs.url, Queue("ocr"), 2), lambda value: 1 // value)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        with Client(sqs.url, "ocr") as client, pytest.raises(WorkError, match="ZeroDivisionError"):
            client.request(0)
    finally:
        worker.drain()
        thread.join(TIMEOUT_SECONDS)
    assert sqs.texts("ocr-dead") == []


def test_an_id_or_a_time_of_any_other_client_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = BasicProperties(correlation_id=b"\xe9\xff", timestamp=2**60, headers={amqp.REASON: "bad"})
    letter = amqp.read_dead_letter(b"x", foreign)
    listed = Mock(**{"dead_letters.return_value": [letter], "resend.return_value": [letter.id]})
    monkeypatch.setattr(transports, "inspector", lambda *_: listed)
    monkeypatch.setenv(command.URL, "amqp://any")
    for arguments in (["dead-letters"], ["dead-letters", "--json"], ["resend", "--all"]):
        assert command.main([*arguments, "--queue", "q"]) == 0
        assert "xe9" in capsys.readouterr().out


def test_what_a_module_raises_is_raised_and_a_name_without_a_function_is_an_invalid_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model_without.py").write_text("import no_such_dependency")
    (tmp_path / "model_with_bad.py").write_text("raise ValueError('weights')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(command.URL, "amqp://any")
    for name, error in (("model_without", ModuleNotFoundError), ("model_with_bad", ValueError)):
        with pytest.raises(error):
            command.main([f"{name}:run", "--queue", "q"])
    for name in ("no_such_module:run", "json.no_such:run", "json:no_such", "json"):
        with pytest.raises(SystemExit):
            command.main([name, "--queue", "q"])
        assert "no_such" in (text := capsys.readouterr().err) or "module:function" in text
