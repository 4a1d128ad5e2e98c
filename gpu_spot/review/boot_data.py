"""What another version of the boot data changes, in words: a command, a revision, an agent; never base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_spot.review.leaves import lines
from gpu_spot.review.text import code

_SETTINGS: Final = "/etc/gpu-spot/agent.json"
_ENVIRONMENT: Final = "/etc/gpu-spot/boot.env"
_SCRIPT: Final = "/opt/gpu-spot/boot.sh"
_NOT_KNOWN: Final = "boot data: known only at the update"


def told(before: str, after: str) -> tuple[str, ...]:
    """Return what two versions of a template's ``userData`` (base64) differ in, a line each."""
    old, new = _files(before), _files(after)
    if old is None or new is None:
        return (_NOT_KNOWN,)
    return tuple(_differences(old, new))


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(old.keys() | new.keys()):
        one, other = old.get(path, ""), new.get(path, "")
        if one == other:
            continue
        if path == _SETTINGS:
            yield from lines(one, other)
        elif path == _ENVIRONMENT:
            yield from _environment(one, other)
        elif path == _SCRIPT:
            yield "another boot script"
        else:
            yield f"another file {code(path)}"


def _environment(old: str, new: str) -> Iterator[str]:
    one, other = _assigned(old), _assigned(new)
    if one.get("AGENT_SHA256") != other.get("AGENT_SHA256"):
        yield "another version of the node agent"
    for name in sorted(one.keys() | other.keys()):
        if not name.startswith("AGENT_") and one.get(name) != other.get(name):
            yield f"{name}: {code(one.get(name, ''))} → {code(other.get(name, ''))}"


def _files(data: str) -> dict[str, str] | None:
    """Return what the boot data writes, by path; None where it is not known yet or not ours."""
    try:
        text = base64.b64decode(data, validate=True).decode()
        head, _, body = text.partition("\n")
        files = json.loads(body)["write_files"]
        return {one["path"]: one["content"] for one in files} if head == "#cloud-config" else None
    except (binascii.Error, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _assigned(text: str) -> dict[str, str]:
    return dict(re.findall(r'^(\w+)="?(.*?)"?$', text, re.M))
