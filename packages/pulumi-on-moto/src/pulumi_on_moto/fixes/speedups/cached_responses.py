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

from pulumi_on_moto.fixes import around

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


def _respond(process: Callable[..., Any], stubber: Any, request: Any) -> Any:
    """Return moto's response to a request, from the cache if it is there."""
    responses, body = _cache_of(request)
    if responses is None:
        return process(stubber, request)
    key = (request.url, body)
    if key not in responses:
        response = process(stubber, request)
        if response is None or response[0] != 200:
            return response
        responses[key] = response
    return responses[key]


def _cache_of(request: Any) -> tuple[dict[tuple[str, str], Any] | None, str]:
    """Return the cache of a read, None for others, and what is asked; drop what a request may change."""
    host = urlsplit(request.url).netloc
    if host.startswith("dynamodb."):
        body, action = _text(request.body), _text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        return _cacheable_rows(action, body), action + body
    if not host.startswith(_SERVICES):
        return None, ""
    body = _text(request.body)
    is_read = body.startswith(_READ)
    if not is_read or (_due_times and min(_due_times) <= time.time()):
        _due_times[:] = [moment for moment in _due_times if moment > time.time()]
        changed()
    return _cached if is_read else None, body


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


CACHED_RESPONSES: Final = around(BotocoreStubber, "process_request", _respond)
