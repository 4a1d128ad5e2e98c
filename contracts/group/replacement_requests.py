"""Replacement requests. The health checker writes them; only the controller terminates instances.

They are stored in the group's parameter ``replacements``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts import codec

MAX_REQUESTS: Final = 40
"""A standard-tier parameter holds 4,096 bytes. Source: Systems Manager user guide, "Parameter tiers"."""
MAX_REASON_LENGTH: Final = 40
"""Characters of a reason, which is one of the health checker's verdicts."""
NOT_SERVING: Final = frozenset({"stuck", "failing", "idle-gpu"})
"""Verdicts on instances that report but do not serve, or answer with errors: they are terminated before a
successor is ready. An instance that does not report is terminated early under any verdict."""


@dataclass(frozen=True, slots=True)
class ReplacementRequest:
    """An instance to replace, the time of the request (epoch seconds), and the verdict that caused it."""

    instance: str
    requested_at: int
    reason: str


def dump(requests: Iterable[ReplacementRequest]) -> str:
    """Serialize the oldest `MAX_REQUESTS` requests as ``{instance: [time, reason]}``."""
    oldest = sorted(requests, key=lambda request: (request.requested_at, request.instance))[:MAX_REQUESTS]
    by_instance = {r.instance: [r.requested_at, r.reason[:MAX_REASON_LENGTH]] for r in oldest}
    return json.dumps(by_instance, separators=(",", ":"))


def parse(text: str) -> tuple[ReplacementRequest, ...]:
    """Parse the parameter's value; raise ``ValueError`` if it is invalid."""
    by_instance = codec.parse_text(dict[str, tuple[int, str]], text)
    return tuple(ReplacementRequest(instance, at, reason) for instance, (at, reason) in by_instance.items())
