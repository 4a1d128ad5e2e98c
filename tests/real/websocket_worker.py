"""A worker that speaks WebSocket at ``$ADDRESS`` and ``$GPU_SPOT_PORT``."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

_TOKEN_SECONDS: Final = float(os.environ.get("TOKEN_SECONDS", "0.02"))
_ADDRESS: Final = os.environ.get("ADDRESS", "127.0.0.1"), int(os.environ.get("GPU_SPOT_PORT", "8000"))


def _words(request: bytes | str) -> Iterator[str]:
    prompt, tokens = json.loads(request)
    for word in itertools.islice(itertools.cycle(prompt.split()), tokens):
        time.sleep(_TOKEN_SECONDS)
        yield word


def main() -> int:
    """Serve until SIGTERM."""
    from websockets.sync.server import serve

    def converse(connection: Any) -> None:
        for request in connection:
            for word in _words(request):
                connection.send(word)

    def answer(connection: Any, request: Any) -> Any:
        return connection.respond(HTTPStatus.OK, "ready\n") if request.path == "/health" else None

    is_ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ended.set())
    with serve(converse, *_ADDRESS, process_request=answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        is_ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
