"""A stand-in for an OpenAI-compatible inference server: it answers with the prompt's words, one by one.

It has what gpu-spot asks of any HTTP worker: it listens on ``$PORT``, answers ``GET /health`` with 200 once
its model is loaded, and ends its requests after SIGTERM. It needs the standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = os.environ.get("MODEL", "stand-in")
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "0"))
TOKEN_SECONDS = float(os.environ.get("TOKEN_SECONDS", "0.02"))
"""Time that a token takes."""
MAX_TOKENS = 4096

is_loaded = threading.Event()
numbers = itertools.count(1)


def load() -> None:
    """Load the model."""
    time.sleep(LOAD_SECONDS)
    is_loaded.set()


def generate(prompt: str, tokens: int) -> Iterator[str]:
    """Yield the reply's tokens: the prompt's words, again from the first after the last."""
    words = itertools.cycle(prompt.split() or ["nothing"])
    for word in itertools.islice(words, tokens):
        time.sleep(TOKEN_SECONDS)
        yield f"{word} "


class TokenServer(ThreadingHTTPServer):
    """A thread for each request; closing waits for all of them."""

    daemon_threads = False
    request_queue_size = 128


class TokenHandler(BaseHTTPRequestHandler):
    """The API's four paths."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body in one packet: a caller gets all of a short reply, or nothing, which a proxy may repeat.
    wbufsize = 65536

    def do_GET(self) -> None:
        """Answer the readiness probe, and the list of models."""
        if self.path == "/health":
            self.reply(200 if is_loaded.is_set() else 503, {})
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self.fail(404, f"no {self.path}")

    def do_POST(self) -> None:
        """Answer a chat, whole or as a stream, and embeddings."""
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if self.path == "/v1/chat/completions":
                self.chat(body)
            elif self.path == "/v1/embeddings":
                vector = [float(len(str(body["input"])) % 7), 1.0]
                data = [{"object": "embedding", "index": 0, "embedding": vector}]
                self.reply(200, {"object": "list", "model": MODEL, "data": data})
            else:
                self.fail(404, f"no {self.path}")
        except (ValueError, KeyError, TypeError) as error:
            self.fail(400, f"malformed request: {error!r}")

    def chat(self, body: dict[str, Any]) -> None:
        """Answer a chat with at most ``max_tokens`` tokens."""
        prompt = str(body["messages"][-1]["content"])
        tokens = min(int(body.get("max_tokens") or len(prompt.split())), MAX_TOKENS)
        answer = {
            "id": f"chatcmpl-{os.getpid()}-{next(numbers)}",
            "created": int(time.time()),
            "model": MODEL,
        }
        if body.get("stream"):
            self.stream(answer, generate(prompt, tokens))
            return
        message = {"role": "assistant", "content": "".join(generate(prompt, tokens)).strip()}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": tokens, "total_tokens": tokens}
        self.reply(200, {**answer, "object": "chat.completion", "choices": [choice], "usage": usage})

    def stream(self, answer: dict[str, Any], tokens: Iterator[str]) -> None:
        """Send the tokens as server-sent events, each at once."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token in tokens:
            choice = {"index": 0, "delta": {"content": token}, "finish_reason": None}
            self.event(json.dumps({**answer, "object": "chat.completion.chunk", "choices": [choice]}))
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        self.event(json.dumps({**answer, "object": "chat.completion.chunk", "choices": [choice]}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, text: str) -> None:
        """Send an event as a chunk."""
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Send a JSON body."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status: int, text: str) -> None:
        """Send an error as the API does."""
        self.reply(status, {"error": {"message": text, "type": "invalid_request_error"}})

    def handle(self) -> None:
        """Serve a connection; the caller may close it at any time."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Log nothing: the load balancer has the requests."""


def main() -> int:
    """Serve until SIGTERM."""
    server = TokenServer((os.environ.get("ADDRESS", ""), int(os.environ["PORT"])), TokenHandler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    threading.Thread(target=load, daemon=True).start()
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
