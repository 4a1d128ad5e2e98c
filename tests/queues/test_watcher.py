"""The queue watcher with a misbehaving management API, tables of moto, and a new kind of queue."""

from __future__ import annotations

import io
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Logger

from contracts import names, watched_queue
from contracts.registry import queue_state
from contracts.registry import queue_state as backlog
from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import kinds
from lambdas.aws.queues.rabbitmq import RabbitMqReader
from lambdas.aws.queues.watcher import QueueOutcome, QueueWatcher, build
from lambdas.core.queues.history import QueueHistory
from lambdas.handlers import queues as entry
from tests import models
from tests.fakes.aws import FakeAws
from tests.queues.test_management_api import BUSY, STARTED
from tests.real.job.code_host import certify
from tests.served import Handler, served
from tests.waiting import TIMEOUT_SECONDS

SECRET = "queues/ocr"
TABLE = "registry"
REGISTRY_KEYS = names.REGISTRY_KEY, names.REGISTRY_SORT_KEY


@dataclass
class Api:
    """A management API: ``answer`` writes the next response, ``requests`` are paths and credentials."""

    answer: Callable[[Handler], None]
    requests: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def respond(self, body_or_json: Any, status: int = 200, **headers: str) -> None:
        content = body_or_json if isinstance(body_or_json, bytes) else json.dumps(body_or_json).encode()

        self.answer = lambda to: to.answer(status, content, **headers)


@pytest.fixture
def api() -> Iterator[Api]:
    yield from serve(None)


def serve(tls: ssl.SSLContext | None) -> Iterator[Api]:
    api = Api(lambda to: None)
    api.respond(BUSY)

    class Answering(Handler):
        def respond(self, body: bytes) -> None:
            api.requests.append((self.path, self.headers["Authorization"]))
            api.answer(self)

    with served(Answering, tls) as api.port:
        yield api


def as_deployed(monkeypatch: pytest.MonkeyPatch, queues: list[WatchedQueue], now: Callable[[], float]) -> Any:
    """Give the handler its environment, a clock and a log, and return the log."""
    for name, value in {
        names.ENV_STACK: "dev",
        names.ENV_QUEUES: watched_queue.dumps(queues),
        names.ENV_REGISTRY_TABLE: TABLE,
        "POWERTOOLS_SERVICE_NAME": names.SERVICE_QUEUES,
        "AWS_DEFAULT_REGION": "us-west-2",
    }.items():
        monkeypatch.setenv(name, value)
    log = io.StringIO()
    monkeypatch.setattr(entry, "logger", Logger(service=str(queues), stream=log))
    monkeypatch.setattr(entry.time, "time", now)
    entry._watcher.cache_clear()
    return log


@dataclass
class Deployment:
    """Tables and secrets of moto, and a clock."""

    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb", "us-west-2")
        self.secrets = boto3.client("secretsmanager", "us-west-2")
        models.create_table(self.dynamodb, TABLE, *REGISTRY_KEYS)
        self.secrets.create_secret(Name=SECRET, SecretString="amqps://ocr:first@rabbit")

    def watcher(self, *queues: WatchedQueue) -> QueueWatcher:
        clients = {"dynamodb": self.dynamodb, "secretsmanager": self.secrets}
        return build(clients.__getitem__, queues, TABLE, lambda: self.now)

    def minute(self, watcher: QueueWatcher, seconds: float = 5.0) -> QueueOutcome:
        self.now += 60
        [outcome] = watcher.run(seconds)
        return outcome

    def row(self, group: str = "ocr") -> QueueState | None:
        item = self.dynamodb.get_item(TableName=TABLE, Key=backlog.key(group)).get("Item")
        return backlog.parse(item) if item else None


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    with models.moto():
        yield Deployment()


def queue(api: Api, group: str = "ocr") -> WatchedQueue:
    return WatchedQueue(group, "rabbitmq", "pages", SECRET, api.address)


def test_the_state_is_written_from_the_second_pass_on(deployment: Deployment, api: Api) -> None:
    watcher = deployment.watcher(queue(api))
    assert deployment.minute(watcher) == QueueOutcome(queue(api))
    assert deployment.row() is None
    api.respond({**BUSY, "messages_ready": 122, "message_stats": {"ack": 33, "publish": 160}})
    outcome = deployment.minute(watcher)
    assert outcome.state == QueueState(deployment.now, 122, 5, 60.0, 1.0, 0.5, 1)
    assert deployment.row() == outcome.state
    [(path, user)] = {*api.requests}
    assert path.startswith("/api/queues/%2F/pages?columns=")
    assert user == "Basic b2NyOmZpcnN0"  # ocr:first


def test_a_new_instance_of_the_function_continues_with_the_stored_history(
    deployment: Deployment, api: Api
) -> None:
    for _ in range(3):
        outcome = deployment.minute(deployment.watcher(queue(api)))
    assert outcome.state.oldest_seconds == 120.0


def test_another_queue_starts_without_history(deployment: Deployment, api: Api) -> None:
    deployment.minute(deployment.watcher(queue(api)))
    other = WatchedQueue("ocr", "rabbitmq", "words", SECRET, api.address)
    assert deployment.minute(deployment.watcher(other)) == QueueOutcome(other)


def test_a_malformed_history_is_reset(deployment: Deployment, api: Api) -> None:
    watcher = deployment.watcher(queue(api))
    deployment.minute(watcher)
    key = {**backlog.key("ocr"), names.REGISTRY_SORT_KEY: {"S": "history"}}
    [item] = [deployment.dynamodb.get_item(TableName=TABLE, Key=key)["Item"]]
    deployment.dynamodb.put_item(TableName=TABLE, Item={**item, "text": {"S": "nonsense"}})
    assert deployment.minute(watcher) == QueueOutcome(queue(api))
    assert deployment.minute(watcher).state is not None


@pytest.mark.parametrize(
    ("response", "status", "message"),
    [
        ([], 200, "returned no queue length"),
        ({"error": "not_authorized"}, 401, "rejects the user in the secret"),
        ({"error": "Object Not Found"}, 404, "no such queue"),
        (b"<html>\n<h1>502</h1>\n</html>", 200, "did not return JSON"),
        (b"[" * 1_100_000, 200, "has more than 1000000 bytes"),
        ({}, 500, "status 500"),
    ],
)
def test_an_unreachable_queue_writes_no_state(
    deployment: Deployment, api: Api, response: Any, status: int, message: str
) -> None:
    watcher = deployment.watcher(queue(api))
    deployment.minute(watcher)
    deployment.minute(watcher)
    before = deployment.row()
    api.respond(response, status)
    outcome = deployment.minute(watcher)
    assert message in outcome.error
    assert "\n" not in outcome.error
    assert "first" not in outcome.error  # the password
    assert outcome.state is None
    assert deployment.row() == before is not None


def test_the_watcher_recovers_after_ten_minutes_without_a_broker(deployment: Deployment, api: Api) -> None:
    watcher = deployment.watcher(queue(api))
    deployment.minute(watcher)
    unreachable = deployment.watcher(WatchedQueue("ocr", "rabbitmq", "pages", SECRET, "http://127.0.0.1:9"))
    for _ in range(10):
        assert "does not respond: ConnectionRefusedError" in deployment.minute(unreachable).error
    assert deployment.row() is None
    outcome = deployment.minute(watcher)
    assert outcome.state.oldest_seconds == 660.0
    api.respond(STARTED)  # the broker has restarted
    assert deployment.minute(watcher) == QueueOutcome(queue(api))


def test_a_broker_that_hangs_or_responds_slowly_uses_only_its_share_of_time(
    deployment: Deployment, api: Api
) -> None:
    free = threading.Event()

    def hang(to: BaseHTTPRequestHandler) -> None:
        free.wait(TIMEOUT_SECONDS)

    def drip(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        while not free.wait(0.05):
            try:
                to.wfile.write(b" ")
                to.wfile.flush()
            except OSError:
                return

    try:
        for answer in (hang, drip):
            api.answer = answer
            assert (
                "does not respond: TimeoutError"
                in deployment.minute(deployment.watcher(queue(api)), 0.5).error
            )
    finally:
        free.set()


def test_a_queue_without_remaining_time_is_not_polled(deployment: Deployment, api: Api) -> None:
    watcher = replace(deployment.watcher(queue(api)), dynamodb=None)  # type: ignore[type-var]
    assert deployment.minute(watcher, 0.0).error == "no time left for this queue"
    assert not api.requests


def test_a_redirect_is_not_followed(deployment: Deployment, api: Api) -> None:
    """A redirect could send the password to another host."""
    api.respond(b"", 302, Location=f"{api.address}/elsewhere")
    assert "status 302" in deployment.minute(deployment.watcher(queue(api))).error
    assert not [path for path, _ in api.requests if "elsewhere" in path]


def test_a_changed_password_is_read_at_once(deployment: Deployment, api: Api) -> None:
    watcher = deployment.watcher(queue(api))
    deployment.minute(watcher)
    busy = api.answer

    def answer(to: BaseHTTPRequestHandler) -> None:
        if to.headers["Authorization"] == "Basic b2NyOnNlY29uZA==":  # ocr:second
            busy(to)
        else:
            to.send_error(401)

    api.answer = answer
    assert "rejects the user in the secret" in deployment.minute(watcher).error
    deployment.secrets.put_secret_value(SecretId=SECRET, SecretString="amqps://ocr:second@rabbit")
    assert deployment.minute(watcher).state is not None
    requests = len(api.requests)
    deployment.minute(watcher)
    assert len(api.requests) == requests + 1


@pytest.mark.parametrize("minutes", [1, 5])
def test_another_broker_in_the_secret_is_read_whether_the_one_before_answers_or_not(
    deployment: Deployment, api: Api, minutes: int
) -> None:
    watcher = deployment.watcher(queue(api))
    deployment.minute(watcher)
    if minutes == 1:
        api.answer = lambda to: None
        assert "does not respond" in deployment.minute(watcher).error
        api.respond(BUSY)
    deployment.secrets.put_secret_value(SecretId=SECRET, SecretString="amqps://ocr:second@other")
    for _ in range(minutes):
        deployment.minute(watcher)
    assert api.requests[-1][1] == "Basic b2NyOnNlY29uZA=="  # ocr:second


@pytest.mark.parametrize(
    ("text", "message"), [("nonsense", "the broker's URL"), ("amqps://b", "has no host")]
)
def test_a_secret_without_a_url_is_an_error_until_it_is_fixed(
    deployment: Deployment, api: Api, text: str, message: str
) -> None:
    deployment.secrets.put_secret_value(SecretId=SECRET, SecretString=text)
    watcher = deployment.watcher(queue(api))
    assert message in deployment.minute(watcher).error
    deployment.secrets.put_secret_value(SecretId=SECRET, SecretString="amqps://ocr:first@rabbit")
    assert deployment.minute(watcher) == QueueOutcome(queue(api))


def test_an_unreadable_secret_is_an_error(deployment: Deployment, api: Api) -> None:
    missing_secret = WatchedQueue("ocr", "rabbitmq", "pages", "queues/none", api.address)
    assert "ResourceNotFoundException" in deployment.minute(deployment.watcher(missing_secret)).error


def test_a_queue_is_reported_before_the_next_is_read(deployment: Deployment, api: Api) -> None:
    watcher = deployment.watcher(*(queue(api, group) for group in ("a", "b")))
    outcomes = watcher.run(5.0)
    assert next(outcomes).error == ""
    deployment.now += 5.0
    assert "no time left for this queue" in next(outcomes).error


def test_an_error_in_one_queue_does_not_affect_the_others(deployment: Deployment, api: Api) -> None:
    queues = [queue(api, group) for group in ("a", "b")]
    unsupported = WatchedQueue("c", "carrier-pigeons", "pages", SECRET)
    watcher = deployment.watcher(queues[0], unsupported, queues[1])
    [*watcher.run(5.0)]
    deployment.now += 60
    outcomes = {outcome.queue.group: outcome for outcome in watcher.run(5.0)}
    assert outcomes["a"].state == outcomes["b"].state is not None
    assert "queue kind must be rabbitmq, not 'carrier-pigeons'" in outcomes["c"].error


def test_a_broker_needs_a_trusted_certificate(deployment: Deployment, tmp_path: Path) -> None:
    authority, tls = certify(tmp_path)
    for api in serve(tls):
        watched = WatchedQueue("ocr", "rabbitmq", "pages", SECRET, f"https://127.0.0.1:{api.port}")
        assert "CERTIFICATE_VERIFY_FAILED" in deployment.minute(deployment.watcher(watched)).error
        assert not api.requests
        trusting = RabbitMqReader(deployment.secrets, ssl.create_default_context(cafile=str(authority)))
        watcher = QueueWatcher(
            [watched], {"rabbitmq": trusting}, deployment.dynamodb, TABLE, lambda: deployment.now
        )
        assert deployment.minute(watcher) == QueueOutcome(watched)


def test_the_handler_emits_metrics_for_each_queue_and_logs_each_error(
    deployment: Deployment, api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unreachable = WatchedQueue("unreachable", "rabbitmq", "pages", "queues/none", api.address)
    watched = [replace(queue(api), requests_per_worker=5), unreachable]
    log = as_deployed(monkeypatch, watched, lambda: deployment.now)
    for _ in range(2):
        deployment.now += 60
        entry.handler({}, Remaining())
    entry._watcher.cache_clear()
    [first, second] = [json.loads(line) for line in log.getvalue().splitlines()]
    assert first["message"] == second["message"] == "queue unreachable"
    assert (first["group"], first["queue"]) == ("unreachable", "pages")
    assert "ResourceNotFoundException" in first["reason"]
    metric_lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    metrics = {(line["group"], name): line[name][-1] for line in metric_lines for name in metric_names(line)}
    queue_metrics = {value for name, value in vars(names).items() if name.startswith("METRIC_QUEUE_")}
    assert {name for group, name in metrics if group == "ocr"} == queue_metrics
    assert metrics["ocr", "QueueUnreachable"] == 0
    assert metrics["unreachable", "QueueUnreachable"] == 1
    assert (metrics["ocr", "QueueReady"], metrics["ocr", "QueueOldestMessageAge"]) == (92, 60)
    assert not [name for group, name in metrics if group == "unreachable" and name != "QueueUnreachable"]
    assert all(line["service"] == "queues" and line["stack"] == "dev" for line in metric_lines)


def metric_names(line: dict[str, Any]) -> list[str]:
    [directives] = line["_aws"]["CloudWatchMetrics"]
    return [metric["Name"] for metric in directives["Metrics"]]


class Remaining:
    def get_remaining_time_in_millis(self) -> int:
        return 20_000


PIGEONS = WatchedQueue("ocr", "pigeons", "loft", "roof")
STATE = QueueState(
    observed_at=60.0, ready=3, in_flight=1, oldest_seconds=9.0, publish_rate=0.5, ack_rate=0.25, consumers=2
)


class FakeReader:
    def __init__(self, sky: object) -> None:
        self.sky = sky

    def observe(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[QueueState | None, QueueHistory]:
        assert (queue, self.sky) == (PIGEONS, "client of sky")
        return STATE, past


def test_a_new_kind_is_read_and_its_item_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.KINDS, "pigeons", lambda client: FakeReader(client("sky")))  # type: ignore[arg-type]
    aws = FakeAws()
    clients = {"dynamodb": aws.client("dynamodb"), "sky": "client of sky"}
    [outcome] = build(clients.__getitem__, [PIGEONS], "registry", lambda: 60.0).run(5.0)
    assert (outcome.state, outcome.error) == (STATE, "")
    assert queue_state.dump("ocr", STATE) in aws.rows[names.queue_partition("ocr")].values()
