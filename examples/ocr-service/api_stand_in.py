"""A local HTTP server in place of an external OCR API, for demos and tests: ``python api_stand_in.py PORT``.

It reads with the numpy model, takes ``SECONDS`` for a call, and fails every tenth one with status 503.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

os.environ["OCR_MODEL"] = "numpy"
from preprocess import cut
from recognise import read

SECONDS: Final = 0.3
FAILS_EVERY: Final = 10
_numbers: Final = itertools.count(1)


class Handler(BaseHTTPRequestHandler):
    """Replies with the text of a posted image."""

    def do_POST(self) -> None:
        """Read the image, unless this call is one that fails."""
        image = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(SECONDS)
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            self.send_error(401)
        elif next(_numbers) % FAILS_EVERY == 0:
            self.send_error(503)
        else:
            self._reply(image)

    def _reply(self, image: bytes) -> None:
        try:
            lines = cut(image)
        except ValueError as error:
            self.send_error(400, str(error))
            return
        body = json.dumps({"text": "\n".join(read(lines))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no access log."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
