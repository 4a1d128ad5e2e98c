"""The queue watcher against a broker's management API that misbehaves, and tables of moto."""

from __future__ import annotations

import datetime
import io
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Logger
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from contracts import names, watched_queue
from contracts.registry import queue_state as backlog
from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues.rabbitmq import RabbitMq
from lambdas.aws.queues.watcher import QueueOutcome, QueueWatcher, build
from lambdas.handlers import queues as entry
from tests import models
from tests.queues.test_management_api import BUSY, STARTED
from tests.waiting import PATIENCE

SECRET = "queues/ocr"
TABLE = "registry"


@dataclass
class Api:
    """A management API: ``answer`` writes what is to come, ``asked`` are paths and who asked."""

    answer: Callable[[BaseHTTPRequestHandler], None]
    asked: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tell(self, told: Any, status: int = 200, **headers: str) -> None:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()

        def answer(to: BaseHTTPRequestHandler) -> None:
            to.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                to.send_header(name, value)
            to.end_headers()
            to.wfile.write(body)

        self.answer = answer


@pytest.fixture
def api() -> Iterator[Api]:
    yield from serve(None)


def serve(tls: ssl.SSLContext | None) -> Iterator[Api]:
    made = Api(lambda to: None)
    made.tell(BUSY)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers["Authorization"]))
            made.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@dataclass
class Place:
    """moto's tables and secrets, and a clock."""

    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb", "us-west-2")
        self.secrets = boto3.client("secretsmanager", "us-west-2")
        keys = (names.REGISTRY_KEY, names.REGISTRY_SORT_KEY)
        self.dynamodb.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            KeySchema=[
                {"AttributeName": keys[0], "KeyType": "HASH"},
                {"AttributeName": keys[1], "KeyType": "RANGE"},
            ],
        )
        self.secrets.create_secret(Name=SECRET, SecretString="amqps://ocr:first@rabbit")

    def watcher(self, *queues: WatchedQueue) -> QueueWatcher:
        clients = {"dynamodb": self.dynamodb, "secretsmanager": self.secrets}
        return build(clients.__getitem__, queues, TABLE, lambda: self.now)

    def minute(self, watcher: QueueWatcher, seconds: float = 5.0) -> QueueOutcome:
        self.now += 60
        [outcome] = watcher.run(seconds)
        return outcome

    def row(self, group: str = "ocr") -> Backlog | None:
        item = self.dynamodb.get_item(TableName=TABLE, Key=backlog.key(group)).get("Item")
        return backlog.parse(item) if item else None


@pytest.fixture
def place() -> Iterator[Place]:
    with models.moto():
        yield Place()


def queue(api: Api, group: str = "ocr") -> WatchedQueue:
    return WatchedQueue(group, "rabbitmq", "pages", SECRET, api.address)


def test_a_look_is_a_row_from_the_second_minute_on(place: Place, api: Api) -> None:
    watcher = place.watcher(queue(api))
    assert place.minute(watcher) == QueueOutcome(queue(api))
    assert place.row() is None
    api.tell({**BUSY, "messages_ready": 122, "message_stats": {"ack": 33, "publish": 160}})
    outcome = place.minute(watcher)
    assert outcome.backlog == Backlog(place.now, 122, 5, 60.0, 1.0, 0.5, 1)
    assert place.row() == outcome.backlog
    [(path, user)] = {*api.asked}
    assert path.startswith("/api/queues/%2F/pages?columns=")
    assert user == "Basic b2NyOmZpcnN0"  # ocr:first


def test_a_new_copy_of_the_function_goes_on_where_the_last_one_was(place: Place, api: Api) -> None:
    for _ in range(3):
        outcome = place.minute(place.watcher(queue(api)))
    assert outcome.backlog is not None
    assert outcome.backlog.oldest == 120.0


def test_another_queue_has_no_history_of_the_one_before(place: Place, api: Api) -> None:
    place.minute(place.watcher(queue(api)))
    other = WatchedQueue("ocr", "rabbitmq", "words", SECRET, api.address)
    assert place.minute(place.watcher(other)) == QueueOutcome(other)


def test_a_history_that_makes_no_sense_is_begun_anew(place: Place, api: Api) -> None:
    watcher = place.watcher(queue(api))
    place.minute(watcher)
    key = {**backlog.key("ocr"), names.REGISTRY_SORT_KEY: {"S": "history"}}
    [item] = [place.dynamodb.get_item(TableName=TABLE, Key=key)["Item"]]
    place.dynamodb.put_item(TableName=TABLE, Item={**item, "text": {"S": "nonsense"}})
    assert place.minute(watcher) == QueueOutcome(queue(api))
    assert place.minute(watcher).backlog is not None


@pytest.mark.parametrize(
    ("told", "status", "says"),
    [
        ([], 200, "tells no length"),
        ({"error": "not_authorized"}, 401, "refuses the secret's user"),
        ({"error": "Object Not Found"}, 404, "no such queue"),
        (b"<html>\n<h1>502</h1>\n</html>", 200, "answers no JSON"),
        (b"[" * 1_100_000, 200, "more than 1000000 bytes"),
        ({}, 500, "status 500"),
    ],
)
def test_what_cannot_be_seen_is_not_written(
    place: Place, api: Api, told: Any, status: int, says: str
) -> None:
    watcher = place.watcher(queue(api))
    place.minute(watcher)
    place.minute(watcher)
    before = place.row()
    api.tell(told, status)
    outcome = place.minute(watcher)
    assert says in outcome.trouble
    assert "\n" not in outcome.trouble
    assert "first" not in outcome.trouble  # the password
    assert outcome.backlog is None
    assert place.row() == before is not None


def test_after_ten_minutes_without_a_broker_it_goes_on(place: Place, api: Api) -> None:
    watcher = place.watcher(queue(api))
    place.minute(watcher)
    away = place.watcher(WatchedQueue("ocr", "rabbitmq", "pages", SECRET, "http://127.0.0.1:9"))
    for _ in range(10):
        assert "does not answer: ConnectionRefusedError" in place.minute(away).trouble
    assert place.row() is None
    outcome = place.minute(watcher)
    assert outcome.backlog is not None
    assert outcome.backlog.oldest == 660.0
    api.tell(STARTED)  # it was the broker that had been away
    assert place.minute(watcher) == QueueOutcome(queue(api))


def test_a_broker_that_hangs_or_drips_takes_no_more_than_its_share(place: Place, api: Api) -> None:
    free = threading.Event()

    def hang(to: BaseHTTPRequestHandler) -> None:
        free.wait(PATIENCE)

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
            assert "does not answer: TimeoutError" in place.minute(place.watcher(queue(api)), 0.5).trouble
    finally:
        free.set()


def test_a_queue_for_which_no_time_is_left_costs_none(place: Place, api: Api) -> None:
    watcher = replace(place.watcher(queue(api)), dynamodb=None)  # type: ignore[type-var]
    assert place.minute(watcher, 0.0).trouble == "no time was left for this queue"
    assert not api.asked


def test_a_redirection_is_not_followed(place: Place, api: Api) -> None:
    """Whoever answers could send the password anywhere."""
    api.tell(b"", 302, Location=f"{api.address}/elsewhere")
    assert "status 302" in place.minute(place.watcher(queue(api))).trouble
    assert not [path for path, _ in api.asked if "elsewhere" in path]


def test_a_password_that_was_changed_is_read_again_at_once(place: Place, api: Api) -> None:
    watcher = place.watcher(queue(api))
    place.minute(watcher)
    busy = api.answer

    def answer(to: BaseHTTPRequestHandler) -> None:
        if to.headers["Authorization"] == "Basic b2NyOnNlY29uZA==":  # ocr:second
            busy(to)
        else:
            to.send_error(401)

    api.answer = answer
    assert "refuses the secret's user" in place.minute(watcher).trouble
    place.secrets.put_secret_value(SecretId=SECRET, SecretString="amqps://ocr:second@rabbit")
    assert place.minute(watcher).backlog is not None
    asked = len(api.asked)
    place.minute(watcher)
    assert len(api.asked) == asked + 1


@pytest.mark.parametrize(("text", "says"), [("nonsense", "the broker's URL"), ("amqps://b", "names no host")])
def test_a_secret_that_is_no_url_is_told_until_it_is_one(
    place: Place, api: Api, text: str, says: str
) -> None:
    place.secrets.put_secret_value(SecretId=SECRET, SecretString=text)
    watcher = place.watcher(queue(api))
    assert says in place.minute(watcher).trouble
    place.secrets.put_secret_value(SecretId=SECRET, SecretString="amqps://ocr:first@rabbit")
    assert place.minute(watcher) == QueueOutcome(queue(api))


def test_a_secret_that_may_not_be_read_is_told(place: Place, api: Api) -> None:
    gone = WatchedQueue("ocr", "rabbitmq", "pages", "queues/none", api.address)
    assert "ResourceNotFoundException" in place.minute(place.watcher(gone)).trouble


def test_one_queue_in_trouble_takes_nothing_from_the_others(place: Place, api: Api) -> None:
    there = [queue(api, group) for group in ("a", "b")]
    odd = WatchedQueue("c", "carrier-pigeons", "pages", SECRET)
    watcher = place.watcher(there[0], odd, there[1])
    watcher.run(5.0)
    place.now += 60
    outcomes = {outcome.queue.group: outcome for outcome in watcher.run(5.0)}
    assert outcomes["a"].backlog == outcomes["b"].backlog is not None
    assert "'carrier-pigeons' are not read, allowed: rabbitmq" in outcomes["c"].trouble


def certificate(folder: Path) -> ssl.SSLContext:
    """A server's TLS with a certificate that it has signed itself, in ``folder``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rabbit")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    return context


def test_a_broker_is_believed_only_with_its_certificate(place: Place, tmp_path: Path) -> None:
    for api in serve(certificate(tmp_path)):
        there = WatchedQueue("ocr", "rabbitmq", "pages", SECRET, f"https://127.0.0.1:{api.port}")
        assert "CERTIFICATE_VERIFY_FAILED" in place.minute(place.watcher(there)).trouble
        assert not api.asked
        trusting = RabbitMq(place.secrets, ssl.create_default_context(cafile=str(tmp_path / "certificate")))
        watcher = QueueWatcher([there], {"rabbitmq": trusting}, place.dynamodb, TABLE, lambda: place.now)
        assert place.minute(watcher) == QueueOutcome(there)


def test_the_handler_tells_each_queue_in_metrics_and_each_trouble_in_a_line(
    place: Place, api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = io.StringIO()
    blind = WatchedQueue("blind", "rabbitmq", "pages", "queues/none", api.address)
    for name, value in {
        names.ENV_STACK: "dev",
        names.ENV_QUEUES: watched_queue.dumps([queue(api), blind]),
        names.ENV_REGISTRY_TABLE: TABLE,
        "POWERTOOLS_SERVICE_NAME": names.SERVICE_QUEUES,
        "AWS_DEFAULT_REGION": "us-west-2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(entry, "logger", Logger(service="queues", stream=log))
    monkeypatch.setattr(entry.time, "time", lambda: place.now)
    entry._watcher.cache_clear()
    for _ in range(2):
        place.now += 60
        entry.handler({}, Remaining())
    entry._watcher.cache_clear()
    [first, second] = [json.loads(line) for line in log.getvalue().splitlines()]
    assert first["message"] == second["message"] == "queue not seen"
    assert (first["group"], first["queue"]) == ("blind", "pages")
    assert "ResourceNotFoundException" in first["reason"]
    sent = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {(line["group"], name): line[name][-1] for line in sent for name in entry_names(line)}
    every = {value for name, value in vars(names).items() if name.startswith("METRIC_QUEUE_")}
    assert {name for group, name in told if group == "ocr"} == every
    assert told["ocr", "QueueUnseen"] == 0
    assert told["blind", "QueueUnseen"] == 1
    assert (told["ocr", "QueueReady"], told["ocr", "QueueOldest"]) == (92, 60)
    assert not [name for group, name in told if group == "blind" and name != "QueueUnseen"]
    assert all(line["service"] == "queues" and line["stack"] == "dev" for line in sent)


def entry_names(line: dict[str, Any]) -> list[str]:
    [told] = line["_aws"]["CloudWatchMetrics"]
    return [metric["Name"] for metric in told["Metrics"]]


class Remaining:
    def get_remaining_time_in_millis(self) -> int:
        return 20_000
