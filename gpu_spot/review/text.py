"""Text from elsewhere inside Markdown: it stays text, on one line, and no longer than a reader wants."""

from __future__ import annotations

from typing import Final

MOST_SHOWN: Final = 160
"""Characters of one value."""


def code(value: str, most: int = MOST_SHOWN) -> str:
    """Return a value as inline code that it cannot leave, cut where it is longer than ``most``."""
    return f"`{short(value, most).replace('`', chr(39)).replace('|', '¦')}`"


def short(value: str, most: int = MOST_SHOWN) -> str:
    """Return a value on one line, cut in its middle where it is longer than ``most`` characters."""
    line = " ".join(value.split()) or "(empty)"
    if len(line) <= most:
        return line
    half = (most - 3) // 2
    return f"{line[:half]} … {line[-half:]}"


def plural(number: int, word: str) -> str:
    """Return a number with its word: ``1 worker``, ``2 workers``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
