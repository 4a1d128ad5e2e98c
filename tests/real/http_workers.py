"""Workers that speak gRPC or WebSocket at ``$ADDRESS`` and ``$GPU_SPOT_PORT``: ``http_workers.py KIND``.

A request is a prompt and a number of tokens, as JSON; the answer are the prompt's words, as in
``examples/http-service``.
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
from typing import Any, Final

_TOKEN_SECONDS: Final = float(os.environ.get("TOKEN_SECONDS", "0.02"))
_ADDRESS: Final = os.environ.get("ADDRESS", "127.0.0.1"), int(os.environ.get("GPU_SPOT_PORT", "8000"))
_END_SECONDS: Final = 30.0


def _words(request: bytes | str) -> Iterator[str]:
    prompt, tokens = json.loads(request)
    for word in itertools.islice(itertools.cycle(prompt.split()), tokens):
        time.sleep(_TOKEN_SECONDS)
        yield word


def _serve_grpc(is_ended: threading.Event) -> None:
    from concurrent import futures

    import grpc

    def chat(request: bytes, context: Any) -> bytes:
        words = list(_words(request))
        context.set_trailing_metadata([("tokens", str(len(words)))])
        return " ".join(words).encode()

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        count = 0
        for word in _words(request):
            count += 1
            yield word.encode()
        context.set_trailing_metadata([("tokens", str(count))])

    methods = {
        "Chat": grpc.unary_unary_rpc_method_handler(chat),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tokens.Model", methods)])
    server.add_insecure_port("{}:{}".format(*_ADDRESS))
    server.start()
    is_ended.wait()
    server.stop(_END_SECONDS).wait()


def _serve_websocket(is_ended: threading.Event) -> None:
    from http import HTTPStatus

    from websockets.sync.server import serve

    def converse(connection: Any) -> None:
        for request in connection:
            for word in _words(request):
                connection.send(word)

    def answer(connection: Any, request: Any) -> Any:
        return connection.respond(HTTPStatus.OK, "ready\n") if request.path == "/health" else None

    with serve(converse, *_ADDRESS, process_request=answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        is_ended.wait()


_WORKERS: Final = {"grpc": _serve_grpc, "websocket": _serve_websocket}


def main(kind: str) -> int:
    """Serve until SIGTERM."""
    is_ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ended.set())
    _WORKERS[kind](is_ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
