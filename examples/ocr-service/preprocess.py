"""Service 1, `pages`: cuts an image to lines, has service 2 read them, and replies with the text.

``spot-work preprocess:read --batch 8 --requests``. Nothing is stored, so a request may run twice. What the
worker holds when its instance is interrupted goes to another one: unstarted requests at SIGTERM, started ones
when the broker loses the connection.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

import glyphs
import numpy as np

from spot_work import Client, Request, WorkError

LINES_QUEUE: Final = "OCR_LINES_QUEUE"
"""Environment variable with the queue of service 2, on the same broker."""
WORKER: Final = "OCR_WORKER"
"""Environment variable with the worker's name in its replies. Default: the host's name."""
_UNLIMITED_SECONDS: Final = 60.0
"""Timeout of the lines of a request without a deadline."""


def read(requests: Sequence[Request]) -> list[dict[str, str] | Exception]:
    """Return the text of each image, and the name of this worker.

    The lines of all images are sent before the first reply is awaited.
    """
    pages = [_send(request) for request in requests]
    return [_reply(page) for page in pages]


def cut(image: bytes) -> list[bytes]:
    """Return the lines of an image, each as ``HEIGHT`` rows of bytes, 1 for ink.

    Ink is what differs from the top left pixel. The scale is the height of the first line.

    Raises:
        ValueError: not an image in the format PGM (P5), or without text.
    """
    ink = _ink(image)
    rows = np.flatnonzero(ink.any(axis=1))
    if not rows.size:
        raise ValueError("the image has no ink; send an image with text")
    bands = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    scale = max(1, round(len(bands[0]) / glyphs.HEIGHT))
    columns = np.flatnonzero(ink.any(axis=0))
    area = ink[:, columns[0] : columns[-1] + 1]
    return [_line(area, int(band[0]), scale) for band in bands]


def _line(area: np.ndarray, top: int, scale: int) -> bytes:
    middle = scale // 2
    rows = area[top : top + scale * glyphs.HEIGHT][middle::scale]
    return rows[:, middle::scale].astype(np.uint8).tobytes()


def _ink(image: bytes) -> np.ndarray:
    header = re.match(rb"P5\s+(\d+)\s+(\d+)\s+255\s", image)
    if header is None:
        raise ValueError(f"the image must be PGM (P5) with 255 gray values; it starts with {image[:2]!r}")
    width, height = int(header[1]), int(header[2])
    pixels = np.frombuffer(image, np.uint8, offset=header.end())
    if pixels.size != width * height or not pixels.size:
        raise ValueError(
            f"the image must have {width} x {height} pixels, as its header says, not {pixels.size}"
        )
    gray = pixels.reshape(height, width).astype(np.int16)
    return np.abs(gray - gray[0, 0]) > 64


def _send(request: Request) -> list[Future[Any]] | Exception:
    deadline = time.time() + _UNLIMITED_SECONDS if request.deadline is None else request.deadline
    try:
        lines = cut(request.value)
        return [_lines().submit(line, timeout=deadline - time.time()) for line in lines]
    except (TypeError, ValueError, WorkError) as error:
        return error


def _reply(page: list[Future[Any]] | Exception) -> dict[str, str] | Exception:
    if isinstance(page, Exception):
        return page
    try:
        text = "\n".join(line.result() for line in page)
    except WorkError as error:
        return error
    return {"text": text, "worker": os.environ.get(WORKER) or socket.gethostname()}


@functools.cache
def _lines() -> Client:
    return Client(os.environ["SPOT_WORK_URL"], os.environ[LINES_QUEUE])
