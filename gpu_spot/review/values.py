"""The engine's marks inside inputs: values that are unknown before the update, and secrets.

Source: ``sdk/go/common/resource/plugin/rpc.go`` (unknown values) and ``sdk/go/common/resource/sig/sig.go``
(signatures) of the engine; ``pkg/backend/display/json.go`` prints a secret as ``[secret]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

UNKNOWN: Final = "(known after the update)"
SECRET: Final = "(secret)"  # noqa: S105 - a mark

_UNKNOWN_SENTINELS: Final = re.compile(
    "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    "|1c4a061d-8072-4f0a-a4cb-0ff528b18fe7"
    "|3eeb2bf0-c639-47a8-9e75-3b44932eb421"
    "|6a19a0b0-7e62-4c92-b797-7f8e31da9cc2"
    "|030794c1-ac77-496b-92df-f27374a8bd58"
    "|e48ece36-62e2-4504-bad9-02848725956a"
    "|dd056dcd-154b-4c76-9bd3-c8f88648b5ff"
)
_SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a mark
_OUTPUT_SIGNATURE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"


def plain(value: Any) -> Any:
    """Return a value with ``UNKNOWN`` and ``SECRET`` in place of the engine's marks, at any depth."""
    if isinstance(value, str):
        return SECRET if value == "[secret]" else _UNKNOWN_SENTINELS.sub(UNKNOWN, value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    signature = value.get(_SIGNATURE)
    if signature == _SECRET_SIGNATURE:
        return SECRET
    if signature == _OUTPUT_SIGNATURE:
        if value.get("secret"):
            return SECRET
        return plain(value["value"]) if "value" in value else UNKNOWN
    return {key: plain(item) for key, item in value.items()}


def has_unknown(value: Any) -> bool:
    """Return whether a value, or something inside it, is known only after the update."""
    return UNKNOWN in json.dumps(value, default=str, ensure_ascii=False)


def is_hidden(value: Any) -> bool:
    """Return whether nothing can be read from a value: it is unknown, or it holds a secret."""
    return has_unknown(value) or SECRET in json.dumps(value, default=str, ensure_ascii=False)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value that should be an object; an empty one if it is not, or unknown."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """Return a value that should be a list; an empty one if it is not, or unknown."""
    return value if isinstance(value, list) else []


def number(value: Any) -> int | None:
    """Return a whole number, also of text; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def grows(old: Any, new: Any) -> bool:
    """Return whether a list keeps all its elements."""
    return isinstance(old, list) and isinstance(new, list) and all(item in new for item in old)
