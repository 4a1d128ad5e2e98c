"""External text inside Markdown: escaped, on one line, with a maximum length."""

from __future__ import annotations

import re
from typing import Final

MAX_VALUE_LENGTH: Final = 160
"""Characters of a value."""


def code(value: str, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return a value as inline code, truncated to ``max_length`` characters."""
    return f"`{short(value, max_length).replace('`', chr(39)).replace('|', '¦')}`"


def label(value: str, allowed: str = "", max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return a name that was not written here: what could be Markdown, a link or a mention is a dot.

    The characters of ``allowed`` stay: those by which a text of ours joins such names.
    """
    markdown = rf"[^\w ,.:/()\[\]{re.escape(allowed)}-]|\]\(|(?<=\w)(?<!\bs3)://|_(?=_)"
    return re.sub(markdown, "·", short(value, max_length))


def short(value: str, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return a value on one line, shortened in the middle to ``max_length`` characters."""
    line = " ".join(value.split()) or "(empty)"
    if len(line) <= max_length:
        return line
    half = (max_length - 3) // 2
    return f"{line[:half]} … {line[-half:]}"
