"""A client: sends an image, returns its text within a deadline, from the workers or from an external API.

``python client.py "HELLO WORLD"`` draws the text and has it read. The broker's URL is in ``SPOT_WORK_URL``.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

import glyphs
from overflow import ApiError, CallLimit, ExternalApi

from spot_work import Client, QueueFullError

log: Final = logging.getLogger("ocr")

QUEUE: Final = "pages"
API: Final = "external API"
"""``Text.source`` of what the API has read."""
FAILED: Final = "failed calls"
WITHHELD: Final = "calls over the limit"


@dataclass(frozen=True)
class Text:
    """The text of an image; ``source`` is the worker that replied, or ``API``."""

    text: str
    source: str


class Reader:
    """Reads images; safe to use from many threads.

    A request that has waited for ``overflow_seconds``, or for which the queue is full, also goes to the API.
    The request stays in the queue until the API has replied: the first reply counts. So a failure of the API
    costs nothing, and no state of the queue has to be known: the wait of the request itself says that workers
    are missing, that there are too few, or that the broker is unreachable.

    Args:
        url: of the broker.
        api: None: requests only wait in the queue.
        overflow_seconds: shortened for a request whose deadline would leave the API too little time.
    """

    def __init__(self, url: str, api: ExternalApi | None = None, overflow_seconds: float = 10.0) -> None:
        self._client = Client(url, QUEUE)
        self._api = api
        self._overflow_seconds = overflow_seconds
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        """Replies by the source of their text, and ``FAILED`` and ``WITHHELD`` calls of the API."""

    @classmethod
    def from_environment(cls) -> Reader:
        """Return the reader that ``SPOT_WORK_URL`` and the variables ``OCR_…`` of the README describe."""
        variables, api = os.environ, None
        if "OCR_API_URL" in variables:
            limit = CallLimit(int(variables["OCR_API_CALLS_PER_HOUR"]))
            api = ExternalApi(variables["OCR_API_URL"], variables["OCR_API_KEY"], limit)
        return cls(variables["SPOT_WORK_URL"], api, float(variables.get("OCR_OVERFLOW_SECONDS", "10")))

    def read(self, image: bytes, timeout: float = 30.0) -> Text:
        """Return the text of an image.

        Raises:
            WorkError: the workers' error; `ExpiredError` if there is no reply within ``timeout`` seconds.
        """
        reply = self._client.submit(image, timeout)
        text = self._read_by_api(reply, image, timeout) if self._api is not None else None
        if text is None:
            value = reply.result()  # within the timeout: the client ends it
            text = Text(value["text"], value["worker"])
        self._count(text.source)
        return text

    def close(self) -> None:
        """Close the connection; open requests raise `LostError`."""
        self._client.close()

    def _read_by_api(self, reply: Future[Any], image: bytes, timeout: float) -> Text | None:
        """Return the API's text, None if the queue is to be waited for."""
        assert self._api is not None
        wait([reply], min(self._overflow_seconds, max(timeout - self._api.timeout_seconds, 0.0)))
        if reply.done() and not isinstance(reply.exception(), QueueFullError):
            return None
        if not self._api.limit.take():
            self._count(WITHHELD)
            return None
        started_at = time.monotonic()
        try:
            text = self._api.read(image)
        except ApiError as error:
            self._count(FAILED)
            log.warning("external API: %s; waiting for the queue", error)
            return None
        reply.cancel()  # workers skip it if it has not started
        log.info("external API: read in %.2f s", time.monotonic() - started_at)
        return Text(text, API)

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1


def sample(dice: random.Random) -> tuple[bytes, str]:
    """Return an image of random text, and the text."""
    characters = [*glyphs.GLYPHS]
    lines = ["".join(dice.choices(characters, k=dice.randint(8, 16))) for _ in range(dice.randint(2, 4))]
    ink, paper = dice.choice([(30, 220), (250, 20)])
    return glyphs.draw(lines, dice.randint(1, 2), ink, paper), "\n".join(lines)


def main() -> None:
    """Read the text of the command line from an image of it."""
    logging.basicConfig(level=logging.INFO)
    reader = Reader.from_environment()
    print(reader.read(glyphs.draw(sys.argv[1:] or ["HELLO WORLD"])))
    reader.close()


if __name__ == "__main__":
    main()
