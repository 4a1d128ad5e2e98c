"""Differences of boot data in words: a command, a revision, an agent version; never base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_spot.markdown import code
from gpu_spot.review.value_diff import difference_lines

_SETTINGS: Final = "/etc/gpu-spot/agent.json"
_ENVIRONMENT: Final = "/etc/gpu-spot/boot.env"
_SCRIPT: Final = "/opt/gpu-spot/boot.sh"
DEFAULT_VOLUME_GIB: Final = 100
"""Size of a data volume that the agent's settings do not name (``contracts.agent.config.Volume``)."""
_NOT_KNOWN: Final = "boot data: known only at the update"


def describe_difference(before: str, after: str) -> tuple[str, ...]:
    """Return the differences of two ``userData`` values (base64), one line each."""
    old, new = _files(before), _files(after)
    if old is None or new is None:
        return (_NOT_KNOWN,)
    return tuple(_differences(old, new))


def volume_gib(data: str) -> int | None:
    """Return the size of the declared data volume; None without one, or if it is unknown."""
    try:
        settings = json.loads((_files(data) or {})[_SETTINGS])
    except (KeyError, ValueError):
        return None
    volume = settings.get("volume") if isinstance(settings, dict) else None
    return int(volume.get("sizeGib", DEFAULT_VOLUME_GIB)) if isinstance(volume, dict) else None


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(old.keys() | new.keys()):
        content, new_content = old.get(path, ""), new.get(path, "")
        if content == new_content:
            continue
        if path == _SETTINGS:
            yield from difference_lines(content, new_content)
        elif path == _ENVIRONMENT:
            yield from _environment(content, new_content)
        elif path == _SCRIPT:
            yield "new boot script"
        else:
            yield f"new content of {code(path)}"


def _environment(old: str, new: str) -> Iterator[str]:
    old_values, new_values = _assigned(old), _assigned(new)
    if old_values.get("AGENT_SHA256") != new_values.get("AGENT_SHA256"):
        yield "new version of the node agent"
    for name in sorted(old_values.keys() | new_values.keys()):
        if not name.startswith("AGENT_") and old_values.get(name) != new_values.get(name):
            yield f"{name}: {code(old_values.get(name, ''))} → {code(new_values.get(name, ''))}"


def _files(data: str) -> dict[str, str] | None:
    """Return the files that the boot data writes, by path; None if it is unknown or not ours."""
    try:
        text = base64.b64decode(data, validate=True).decode()
        head, _, body = text.partition("\n")
        files = json.loads(body)["write_files"]
        return {file["path"]: file["content"] for file in files} if head == "#cloud-config" else None
    except (binascii.Error, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _assigned(text: str) -> dict[str, str]:
    return dict(re.findall(r'^(\w+)="?(.*?)"?$', text, re.M))
