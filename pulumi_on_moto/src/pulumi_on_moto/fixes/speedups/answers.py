"""Remember moto's answers to EC2 and Auto Scaling reads until something changes.

A replay asks the same questions every simulated minute, and moto takes tens of milliseconds to render a
dozen instances. An answer is kept as bytes, by request; any other request to the two services, and every
change that the local cloud makes itself (``changed``), drops all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from moto.core.botocore_stubber import BotocoreStubber

from pulumi_on_moto.fixes.fix import Patch

_SERVICES: Final = ("ec2.", "autoscaling.")
_READ: Final = "Action=Describe"

_known: dict[tuple[str, str], Any] = {}
_due: list[float] = []
_lags: dict[str, float] = {}
_stale: dict[tuple[str, str], tuple[Any, float]] = {}


def changed() -> None:
    """Drop every answer: instances, groups or spot requests are not what they were.

    Those of actions that lag stay true for a while: see ``lagging``.
    """
    for key, answer in _known.items() if _lags else ():
        seconds = _lags.get(key[1].partition("&")[0].removeprefix("Action="))
        if seconds:
            _stale.setdefault(key, (answer, time.time() + seconds))
    _known.clear()


def lagging(lags: Mapping[str, float]) -> None:
    """Have reads show what was true at the last read, so many seconds after a change; by action.

    EC2's API is eventually consistent (EC2 developer guide, "Eventual consistency"): what a change made is
    not at once seen by reads. An empty mapping ends it.
    """
    _lags.clear()
    _lags.update(lags)
    _stale.clear()
    _known.clear()


def changes_at(moment: float) -> None:
    """Drop every answer once it is ``moment``, in epoch seconds: something then changes by itself."""
    _due.append(moment)


def _remembered(process: Callable[..., Any]) -> Callable[..., Any]:
    """Return moto's request handler with a memory in front."""

    def answer(stubber: Any, request: Any) -> Any:
        if not urlsplit(request.url).netloc.startswith(_SERVICES):
            return process(stubber, request)
        body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
        if not body.startswith(_READ):
            changed()
            return process(stubber, request)
        if _due and min(_due) <= time.time():
            _due[:] = [moment for moment in _due if moment > time.time()]
            changed()
        key = (request.url, body)
        if key in _stale:
            answer_then, until = _stale[key]
            if time.time() < until:
                return answer_then
            del _stale[key]
        if key not in _known:
            found = process(stubber, request)
            if found is None or found[0] != 200:
                return found
            _known[key] = found
        return _known[key]

    return answer


ANSWERS: Final[Patch] = (
    BotocoreStubber,
    "process_request",
    _remembered(BotocoreStubber.process_request),
)
