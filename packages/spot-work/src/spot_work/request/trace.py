"""The trace that a request belongs to, as W3C Trace Context: ``traceparent`` and ``tracestate``.

A carrier is a mapping with these keys, as the propagators of OpenTelemetry read and write it. A version of
``traceparent`` later than 00 may have more fields. Source: W3C, "Trace Context".
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_MAX_TRACESTATE: Final = 512
"""Characters of ``tracestate``; a longer one is left out, which the recommendation permits."""
_FIELDS: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.+)?"
)
_STATE: Final = re.compile(r"[\x20-\x7e]*")

TraceCarrier = Mapping[str, str]

trace_carriers: Final[ContextVar[tuple[TraceCarrier, ...]]] = ContextVar(
    "spot_work.trace_carriers", default=()
)
"""While a worker's function runs: the carrier of each of its values, in their order; empty for one that has
no trace."""


def read(source: Mapping[str, object]) -> TraceCarrier:
    """Return the carrier in a message's headers; empty if there is none or it is malformed."""
    parent, state = source.get(TRACEPARENT), source.get(TRACESTATE)
    match = _FIELDS.fullmatch(parent) if isinstance(parent, str) else None
    if match is None or (match["version"] == "00" and match["more"]):
        return {}
    carrier = {TRACEPARENT: match[0]}
    if isinstance(state, str) and state and len(state) <= _MAX_TRACESTATE and _STATE.fullmatch(state):
        carrier[TRACESTATE] = state
    return carrier


def check(carrier: TraceCarrier) -> TraceCarrier:
    """Return the carrier of a caller.

    Raises:
        ValueError: ``traceparent`` is malformed or missing.
    """
    if not (checked := read(carrier)):
        parent = str(carrier.get(TRACEPARENT, ""))[:80]
        raise ValueError(
            f"traceparent must be 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, not {parent!r}"
        )
    return checked


def current() -> TraceCarrier:
    """Return the carrier of the trace that the caller is in; empty if it is in none.

    That of OpenTelemetry's current span if the program has imported it; else that of the only value that a
    worker's function runs here.
    """
    if "opentelemetry" in sys.modules:
        injected: dict[str, str] = {}
        importlib.import_module("opentelemetry.propagate").inject(injected)
        if carrier := read(injected):
            return carrier
    values = trace_carriers.get()
    return values[0] if len(values) == 1 else {}
