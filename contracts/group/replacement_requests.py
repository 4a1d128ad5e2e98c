"""Instances that the health checker wants replaced: it writes the list, the controller alone ends instances.

The list is the group's parameter ``wishes``, which the controller reads with all others of the group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts import codec

MOST: Final = 40
"""A parameter of the standard tier holds 4,096 bytes (Systems Manager, "Parameter tiers")."""
MOST_REASON: Final = 40
"""Characters of a reason: one of the checker's verdicts, not a sentence."""
NOT_SERVING: Final = frozenset({"stuck", "idle-gpu"})
"""Verdicts that say that an instance whose workers are heard does not serve: it goes before its successor is
there. Whose workers are not heard does so under any verdict."""


@dataclass(frozen=True, slots=True)
class Wish:
    """An instance to replace, since when it is wished (epoch seconds), and the verdict that led to it."""

    instance: str
    at: int
    reason: str


def dump(wishes: Iterable[Wish]) -> str:
    """Return the parameter's value: the oldest `MOST` wishes."""
    oldest = sorted(wishes, key=lambda wish: (wish.at, wish.instance))[:MOST]
    return json.dumps({w.instance: [w.at, w.reason[:MOST_REASON]] for w in oldest}, separators=(",", ":"))


def parse(text: str) -> tuple[Wish, ...]:
    """Read the parameter's value; raise ``ValueError`` for one that the checker cannot have written."""
    stored = codec.parse_text(dict[str, tuple[int, str]], text, "wishes cannot be read")
    return tuple(Wish(instance, at, reason) for instance, (at, reason) in stored.items())
