"""Property values of the provider protocol: conversion, unknown values, assets, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf import json_format, struct_pb2

UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""An unknown value. Source: pulumi/pulumi, sdk/go/common/resource/plugin/rpc.go."""
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
"""Key of an object that is an asset, an archive or a secret."""

Path = tuple[str | int, ...]


def read(message: struct_pb2.Struct) -> dict[str, Any]:
    """Return properties as Python values; whole numbers are ``int``."""
    values: dict[str, Any] = _whole(json_format.MessageToDict(message))
    return values


def write(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return properties as a message."""
    message = struct_pb2.Struct()
    message.update(dict(values))
    return message


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def has_unknown(value: Any) -> bool:
    """Return whether a value is unknown, or contains one that is."""
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return bool(value == UNKNOWN)


def is_asset(value: Any) -> bool:
    """Return whether a value is an asset or an archive."""
    return isinstance(value, Mapping) and SIGNATURE in value


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the path of each difference, and ``ADD``, ``DELETE`` or ``UPDATE``."""
    if is_asset(old) and is_asset(new):
        if old.get("hash") != new.get("hash"):
            yield path, "UPDATE"
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new} - {"__defaults"}):
            yield from differences(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            items = (values[index] if index < len(values) else None for values in (old, new))
            yield from differences(*items, (*path, index))
    elif old != new:
        yield path, "ADD" if old is None else "DELETE" if new is None else "UPDATE"


def text(path: Path) -> str:
    """Return a path in Pulumi's notation: ``a.b[0]["c.d"]``."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif part.replace("_", "").replace("$", "").isalnum():
            shown += f".{part}" if shown else part
        else:
            shown += f'["{part}"]'
    return shown
