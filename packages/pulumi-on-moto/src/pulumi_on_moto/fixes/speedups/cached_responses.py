"""Cache of moto's responses to reads until a change.

A rehearsal sends the same requests every simulated minute, and moto takes tens of milliseconds to render a
dozen instances. Responses are cached as bytes, by request. Any other request to EC2 or Auto Scaling, and
every change by the local cloud itself (``changed``), drops all responses of these two. A DynamoDB write drops
those of its table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from moto.core.botocore_stubber import BotocoreStubber

from pulumi_on_moto.fixes import Patch

_SERVICES: Final = ("ec2.", "autoscaling.")
_READ: Final = "Action=Describe"
_ROW_READS: Final = ("GetItem", "Query", "Scan")
_ROW_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")

_cached: dict[tuple[str, str], Any] = {}
_due_times: list[float] = []
_rows: dict[str, dict[tuple[str, str], Any]] = {}


def forget() -> None:
    """Clear the cache."""
    _cached.clear()
    _rows.clear()


def changed() -> None:
    """Drop every response: instances, groups or Spot requests have changed."""
    _cached.clear()


def changes_at(moment: float) -> None:
    """Drop every response at ``moment``, in epoch seconds, when state changes by itself."""
    _due_times.append(moment)


def _remembered(process: Callable[..., Any]) -> Callable[..., Any]:
    """Return moto's request handler with the cache in front."""

    def respond(stubber: Any, request: Any) -> Any:
        host = urlsplit(request.url).netloc
        if host.startswith("dynamodb."):
            body, action = _text(request.body), _text(request.headers["X-Amz-Target"]).rpartition(".")[2]
            rows = _cacheable_rows(action, body)
            return (
                process(stubber, request)
                if rows is None
                else _once(rows, (request.url, action + body), stubber, request)
            )
        if not host.startswith(_SERVICES):
            return process(stubber, request)
        body = _text(request.body)
        if not body.startswith(_READ):
            changed()
            return process(stubber, request)
        if _due_times and min(_due_times) <= time.time():
            _due_times[:] = [moment for moment in _due_times if moment > time.time()]
            changed()
        return _once(_cached, (request.url, body), stubber, request)

    def _once(rows: dict[tuple[str, str], Any], key: tuple[str, str], stubber: Any, request: Any) -> Any:
        if key not in rows:
            response = process(stubber, request)
            if response is None or response[0] != 200:
                return response
            rows[key] = response
        return rows[key]

    return respond


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _cacheable_rows(action: str, body: str) -> dict[tuple[str, str], Any] | None:
    """Return a table's cache; a request that is not a read drops the responses that it may change."""
    if action not in (*_ROW_READS, *_ROW_WRITES):
        _rows.clear()
        return None
    parsed = json.loads(body)
    tables = [name.rpartition("/")[2] for name in parsed.get("RequestItems") or [parsed["TableName"]]]
    if action in _ROW_READS:
        return _rows.setdefault(tables[0], {})
    for table in tables:
        _rows.pop(table, None)
    return None


CACHED_RESPONSES: Final[Patch] = (
    BotocoreStubber,
    "process_request",
    _remembered(BotocoreStubber.process_request),
)
