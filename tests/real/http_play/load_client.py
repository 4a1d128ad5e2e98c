"""Callers of an HTTP service as one process: requests at random times, responses checked to the last byte.

``python -m tests.real.http_play.load_client CONFIG OUT`` sends until its standard input closes, waits for
the rest and ends. ``OUT`` gets a line for each request, see `Record`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, TextIO

KINDS: Final = ("chat", "stream", "keyed", "models")
"""Requests: a chat and a streamed one, which must not be repeated; a chat with ``Idempotency-Key``; a GET."""
REPEATABLE: Final = frozenset({"keyed", "models"})
TIMEOUT_SECONDS: Final = 60.0
_CONNECTIONS: Final = 256
"""Idle connections to an address, used again as the load balancer does."""
_PROMPT: Final = "the quick brown fox jumps over the lazy dog"


@dataclass(frozen=True)
class LoadConfig:
    """The load: requests per second to ``addresses`` in turn; ``tokens`` is the mean length of a reply."""

    addresses: list[tuple[str, int]]
    rate: float
    tokens: int
    seed: int = 1
    kinds: tuple[str, ...] = KINDS


class Record(NamedTuple):
    """A request: its kind and when it was sent (epoch seconds), seconds to the first and to the last byte."""

    kind: str
    at: float
    first: float
    last: float
    error: str

    @property
    def is_repeatable(self) -> bool:
        return self.kind in REPEATABLE


class _FailedError(Exception):
    """A response that is not the whole right one."""


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Callers:
    def __init__(self, config: LoadConfig, out: TextIO) -> None:
        self._config = config
        self._out = out
        self._random = random.Random(config.seed)
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._next_address = itertools.cycle([(str(host), int(port)) for host, port in config.addresses])
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    async def run(self, is_over: asyncio.Event) -> None:
        next_at = time.monotonic()
        while not is_over.is_set():
            next_at += self._random.expovariate(self._config.rate)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), max(next_at - time.monotonic(), 0.0))
            task = asyncio.create_task(self._request(self._random.choice(self._config.kinds)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.gather(*self._running)

    async def _request(self, kind: str) -> None:
        started, at, first = time.perf_counter(), time.time(), 0.0
        error = ""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                first = await self._exchange(kind, next(self._next_address), started)
        except (_FailedError, OSError, asyncio.IncompleteReadError, ValueError, TimeoutError) as failure:
            error = str(failure) or type(failure).__name__
        last = time.perf_counter() - started
        self._out.write(json.dumps([kind, round(at, 4), round(first, 5), round(last, 5), error]) + "\n")

    async def _exchange(self, kind: str, address: tuple[str, int], started: float) -> float:
        reader, writer = await self._connected(address)
        is_reusable = False
        try:
            tokens = self._random.randint(1, 2 * self._config.tokens - 1)
            writer.write(_message(kind, tokens, next(self._numbers)))
            head = await reader.readuntil(b"\r\n\r\n")
            first = time.perf_counter() - started
            lines = head.decode("latin-1").lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
            body = await _read_body(reader, headers)
            status = lines[0].split(" ")[1]
            if status != "200":
                raise _FailedError(f"status {status}: {body[:80]!r}")
            _check(kind, tokens, body)
            is_reusable = headers.get("connection") != "close"
        finally:
            idle = self._idle.setdefault(address, [])
            if is_reusable and len(idle) < _CONNECTIONS:
                idle.append((reader, writer))
            else:
                writer.close()
        return first

    async def _connected(self, address: tuple[str, int]) -> _Connection:
        idle = self._idle.get(address, [])
        while idle:
            reader, writer = idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*address)


def _message(kind: str, tokens: int, number: int) -> bytes:
    if kind == "models":
        return b"GET /v1/models HTTP/1.1\r\nHost: service\r\n\r\n"
    body = {
        "model": "stand-in",
        "max_tokens": tokens,
        "stream": kind == "stream",
        "messages": [{"role": "user", "content": _PROMPT}],
    }
    data = json.dumps(body).encode()
    key = f"Idempotency-Key: {number}\r\n" if kind == "keyed" else ""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\n"
        f"{key}Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers["content-length"]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def _check(kind: str, tokens: int, body: bytes) -> None:
    """Raise `_FailedError` unless the reply has all its tokens."""
    if kind == "models":
        count = expected = len(json.loads(body)["data"])
    elif kind == "stream":
        count, expected = body.count(b'"content"'), tokens
        if not body.endswith(b"data: [DONE]\n\n"):
            raise _FailedError("the stream has no end")
    else:
        count, expected = len(json.loads(body)["choices"][0]["message"]["content"].split()), tokens
    if count != expected:
        raise _FailedError(f"{count} of {expected} tokens")


def read(path: Path) -> Iterator[Record]:
    """Yield the requests of a finished load client."""
    with path.open() as lines:
        for line in lines:
            yield Record(*json.loads(line))


def dump(config: LoadConfig) -> str:
    """Return the first argument of the process."""
    return json.dumps(asdict(config))


async def _main(config: LoadConfig, out: TextIO) -> None:
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: None if os.read(0, 4096) else is_over.set())
    await _Callers(config, out).run(is_over)


def main(arguments: list[str]) -> int:
    """Send requests until standard input closes."""
    values = json.loads(arguments[0])
    config = LoadConfig(**{**values, "kinds": tuple(values["kinds"])})
    with Path(arguments[1]).open("w") as out:
        asyncio.run(_main(config, out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
