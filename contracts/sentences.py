"""Error messages as sentences: a subject, such as the path of a key, and what is wrong and to be done."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PREDICATE: Final = re.compile(
    r"(must|is|are|has|have|cannot|needs|admits|allows|does|holds|looks|trusts|works)\b"
)
"""How a text begins that continues its subject; every other text is a sentence of its own."""


def alternatives(values: Iterable[object]) -> str:
    """Return values as a choice: ``a``, ``a or b``, ``a, b or c``; without values ``nothing``."""
    *first, last = [str(value) for value in values] or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def joined(subject: str, text: str) -> str:
    """Return ``text`` about ``subject``, without a full stop, to be quoted in another message."""
    is_predicate = _PREDICATE.match(text) is not None
    if not subject:
        return f"the value {text}" if is_predicate else text
    return f"{subject}{' ' if is_predicate else ': '}{text}"


def sentence(subject: str, text: str) -> str:
    """Return ``text`` about ``subject`` as a sentence; without a subject it begins with a capital."""
    whole = joined(subject, text)
    if not subject and re.match(r"[a-z]+ ", whole):
        whole = f"{whole[0].upper()}{whole[1:]}"
    return ended(whole)


def ended(text: str) -> str:
    """Return a text with a full stop, unless it has an end."""
    return text if text.endswith((".", "?", "!")) else f"{text}."
