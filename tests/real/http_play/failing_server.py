"""The example's HTTP server as a bad release: it is ready, and answers every second request with 500."""

from __future__ import annotations

import itertools
import runpy
import sys
from pathlib import Path
from typing import Any

_SERVER = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "http-service" / "server.py"))
_numbers = itertools.count()


def _with_failures(method: Any) -> Any:
    def handle(handler: Any) -> None:
        if handler.path == "/health" or next(_numbers) % 2:
            method(handler)
            return
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.fail(500, "a bad release")

    return handle


if __name__ == "__main__":
    handler_class = _SERVER["TokenHandler"]
    for name in ("do_GET", "do_POST"):
        setattr(handler_class, name, _with_failures(getattr(handler_class, name)))
    sys.exit(_SERVER["main"]())
