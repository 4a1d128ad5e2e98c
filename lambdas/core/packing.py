"""The text of a function's memory, compressed if it is long: a DynamoDB item has at most 400 KB."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Final

PLAIN_LENGTH: Final = 64_000
"""Longer text is stored compressed: the marks of 10,000 instances would not fit into an item."""
MAX_BYTES: Final = 16_000_000
"""Maximum uncompressed size that is read: several times that of 10,000 instances."""
_COMPRESSED: Final = "zlib:"


def packed(stored: Mapping[str, object]) -> str:
    """Return the JSON text of a memory, compressed if it is long."""
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    if len(text) <= PLAIN_LENGTH:
        return text
    return _COMPRESSED + base64.b64encode(zlib.compress(text.encode(), level=1)).decode()


def unpacked(text: str) -> str:
    """Return the JSON text of a memory; raise ``ValueError`` if it cannot be decompressed."""
    if not text.startswith(_COMPRESSED):
        return text
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text.removeprefix(_COMPRESSED), validate=True), MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"memory cannot be decompressed: {error}") from None
    if not inflater.eof:
        raise ValueError(f"memory cannot be decompressed: truncated, or more than {MAX_BYTES} bytes")
    return data.decode()
