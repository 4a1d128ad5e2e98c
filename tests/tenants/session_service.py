"""A double of Session Manager: the API that starts a session, its WebSocket, and the agent on the instance.

It starts sessions with the stack's documents only, runs a document's command on a terminal, and passes bytes
to a document's port and back.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pty
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests import models
from tests.tenants import session_messages as messages
from tests.tenants.session_messages import Message
from tests.tenants.session_ports import Ports

AGENT_VERSION: Final = "3.3.2299.0"
"""One that multiplexes ports, as all since 3.1 do."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_TEXT, _BINARY, _CLOSE, _PING = 1, 2, 8, 9
_RESEND_SECONDS: Final = 0.2


class RefusedError(Exception):
    """What the service answers: a code and a sentence."""


class SessionService:
    """The service with its ``documents`` by name; ``sessions`` are those that were started, by id."""

    def __init__(self, documents: Mapping[str, dict[str, Any]]) -> None:
        self._documents = documents
        self.sessions: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.clients: list[dict[str, Any]] = []
        """What each plugin said at its start, and in its answer to the handshake."""

    def start(self, request: Mapping[str, Any], url: str = "ws://") -> dict[str, str]:
        """Answer ``StartSession``: refuse what botocore's model, the documents or their parameters do."""
        models.check("ssm", "start_session", request)
        document = self._documents.get(request.get("DocumentName", ""))
        if document is None:
            raise RefusedError(f"InvalidDocument: {request.get('DocumentName')}")
        id_ = f"user-{uuid.uuid4().hex[:17]}"
        self.sessions[id_] = _properties(document, request.get("Parameters", {}))
        self.tokens[id_] = f"token of {id_}"
        return {"SessionId": id_, "TokenValue": self.tokens[id_], "StreamUrl": f"{url}/{id_}"}


def _properties(document: dict[str, Any], given: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return a document's session with the parameters filled in."""
    declared = document.get("parameters", {})
    if unknown := {*given} - {*declared}:
        raise RefusedError(f"InvalidParameters: {', '.join(sorted(unknown))}")
    text = json.dumps(document["properties"])
    for name, parameter in declared.items():
        [value] = given.get(name, [parameter["default"]])
        if not re.fullmatch(parameter["allowedPattern"], value):
            raise RefusedError(f"InvalidParameters: {name} {value}")
        text = text.replace("{{ " + name + " }}", value)
    return {"type": document["sessionType"], "properties": json.loads(text)}


class _Handler(BaseHTTPRequestHandler):
    """One request: an API call, or a WebSocket to its end."""

    service: SessionService
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a call of the AWS CLI."""
        assert self.headers["X-Amz-Target"] == "AmazonSSM.StartSession"
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, said = 200, self.service.start(request, f"ws://{self.headers['Host']}/v1/data-channel")
        except RefusedError as error:
            code, _, sentence = str(error).partition(": ")
            status, said = 400, {"__type": code, "message": sentence}
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Become a WebSocket, and serve a session on it."""
        id_ = self.path.rpartition("/")[2]
        key = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + _GUID).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):  # the plugin has gone
            _Channel(self, self.service, id_).serve()

    def read_frame(self) -> tuple[int, bytes]:
        """Read a frame of the client, which is masked (RFC 6455, section 5.2), but no ping."""
        first, second = self._exactly(2)
        assert second & 0x80, "a client masks"
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(self._exactly(2 if size == 126 else 8), "big")
        mask, data = self._exactly(4), self._exactly(size)
        kind = first & 0x0F
        return (
            self.read_frame() if kind == _PING else (kind, bytes(b ^ mask[n % 4] for n, b in enumerate(data)))
        )

    def write_frame(self, data: bytes) -> None:
        """Write a binary frame."""
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
        self.wfile.write(bytes([0x80 | _BINARY]) + size + data)
        self.wfile.flush()

    def _exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise ConnectionResetError
        return data

    def log_message(self, *words: object) -> None:
        """Say nothing."""


class _Channel:
    """A session's data channel, with the agent at its other end."""

    def __init__(self, handler: _Handler, service: SessionService, id_: str) -> None:
        self._handler, self._service, self._id = handler, service, id_
        self._lock = threading.RLock()
        self._sent: dict[int, Message] = {}
        self._next_sent = self._next_received = 0
        self._is_closed = threading.Event()
        self._receive: Callable[[bytes], None] = lambda data: None

    def serve(self) -> None:
        """Check the token, shake hands, and pass data on until the plugin leaves."""
        kind, text = self._handler.read_frame()
        opened = json.loads(text)
        assert (kind, opened["TokenValue"]) == (_TEXT, self._service.tokens[self._id])
        self._service.clients.append(opened)
        session = self._service.sessions[self._id]
        parameters = {"SessionType": session["type"], "Properties": session["properties"]}
        action = {"ActionType": "SessionType", "ActionParameters": parameters}
        hello = {"AgentVersion": AGENT_VERSION, "RequestedClientActions": [action]}
        self._say(messages.HANDSHAKE_REQUEST, hello)
        threading.Thread(target=self._resend, daemon=True).start()
        try:
            while True:
                kind, data = self._handler.read_frame()
                if kind == _BINARY:
                    self._process(Message.parse(data))
                elif kind == _CLOSE:
                    return
        finally:
            self._is_closed.set()

    def say(self, data: bytes) -> None:
        """Send what the port or the command said."""
        self._say(messages.DATA, data)

    def close(self) -> None:
        """End the session, as after the end of its command, when the plugin has all that was said."""
        while self._sent and not self._is_closed.wait(0.05):
            pass
        said = {"SessionId": self._id, "MessageType": messages.CLOSED, "SchemaVersion": 1, "Output": ""}
        with contextlib.suppress(OSError):
            self._write(Message.of(messages.CLOSED, 0, 0, said))

    def _process(self, message: Message) -> None:
        if message.kind == messages.ACKNOWLEDGE:
            self._sent.pop(json.loads(message.payload)["AcknowledgedMessageSequenceNumber"], None)
            return
        assert message.kind == messages.INPUT
        self._write(message.acknowledged())
        if message.sequence != self._next_received:  # sent again, as its acknowledgement came late
            return
        self._next_received += 1
        if message.content == messages.HANDSHAKE_RESPONSE:
            self._begin(json.loads(message.payload))
        elif message.content == messages.DATA:
            self._receive(message.payload)

    def _begin(self, response: dict[str, Any]) -> None:
        self._service.clients.append(response)
        session = self._service.sessions[self._id]
        self._say(messages.HANDSHAKE_COMPLETE, {"HandshakeTimeToComplete": 1, "CustomerMessage": ""})
        if session["type"] == "Port":
            self._receive = Ports(int(session["properties"]["portNumber"]), self._say).receive
        else:
            self._receive = _Terminal(self, session["properties"]["linux"]["commands"]).receive

    def _say(self, content: int, payload: bytes | dict[str, Any]) -> None:
        with self._lock:
            message = Message.of(messages.OUTPUT, self._next_sent, content, payload)
            self._sent[self._next_sent] = message
            self._next_sent += 1
            self._write(message)

    def _write(self, message: Message) -> None:
        with self._lock:
            self._handler.write_frame(message.packed(int(time.time() * 1000)))

    def _resend(self) -> None:
        """Send again what the plugin has not acknowledged: what came before it was ready."""
        while not self._is_closed.wait(_RESEND_SECONDS):
            for _, message in sorted(self._sent.copy().items()):
                with contextlib.suppress(OSError):
                    self._write(message)


class _Terminal:
    """A session of a command, on a terminal of its own."""

    def __init__(self, channel: _Channel, command: str) -> None:
        self._channel = channel
        self._terminal, inside = pty.openpty()
        argv = ["setsid", "--ctty", "sh", "-c", command]
        self._process = subprocess.Popen(argv, stdin=inside, stdout=inside, stderr=inside)
        os.close(inside)
        threading.Thread(target=self._answer, daemon=True).start()

    def receive(self, data: bytes) -> None:
        """Type what the plugin sent."""
        with contextlib.suppress(OSError):
            os.write(self._terminal, data)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # the command has ended, or the plugin has gone
            while data := os.read(self._terminal, 1000):
                self._channel.say(data)
        self._process.wait()
        self._channel.close()


@contextlib.contextmanager
def serving(service: SessionService) -> Iterator[str]:
    """Serve on a free port; yield the URL for the AWS CLI."""
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
