"""Inputs of a provider's resource types, from the typed classes of its SDK."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pulumi

from packages.pulumi_standins.values import UNKNOWN, is_asset

CACHE_VARIABLE: Final = "GPU_SPOT_STANDIN_SCHEMAS"
"""Variable with a directory for derived schemas: importing a provider's modules takes seconds."""

Schema = dict[str, Any]
"""``{"object": {name: [required, schema]}}`` (``text``: or a text), ``{"list": schema}``,
``{"map": schema}``, ``{"scalar": [names]}``, or ``{}`` for any value. ``computed`` of a resource has the
names of the outputs that are not inputs."""


@cache
def resource_schema(token: str) -> Schema | None:
    """Return the schema of a resource type such as ``aws:ec2/vpc:Vpc``, None if the SDK has no such type."""
    folder = os.environ.get(CACHE_VARIABLE)
    path = Path(folder, f"{token.replace(':', '_').replace('/', '_')}.json") if folder else None
    if path is not None and path.exists():
        cached: Schema | None = json.loads(path.read_text("utf-8"))
        return cached
    schema = _derive(token)
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(schema), "utf-8")
        temporary.rename(path)
    return schema


def _derive(token: str) -> Schema | None:
    package, module, name = token.split(":")
    where = [_snake_case(part) for part in module.split("/") if part != "index"]
    if where and where[0] == "lambda":
        where[0] = "lambda_"
    try:
        loaded = importlib.import_module(".".join((f"pulumi_{package}", *where)))
    except ModuleNotFoundError:
        return None
    if not hasattr(loaded, name):
        return None
    # InitArgs, where a nested type has the name already.
    arguments = getattr(loaded, f"{name}InitArgs", None) or getattr(loaded, f"{name}Args")
    inputs = _object(arguments)
    state = _names(getattr(loaded, f"_{name}State", None))
    return {**inputs, "computed": sorted(state - inputs["object"].keys())}


def _snake_case(name: str) -> str:
    pieces = [f"_{letter.lower()}" if letter.isupper() else letter for letter in name]
    return "".join(pieces).lstrip("_")


def _names(cls: type | None) -> set[str]:
    if cls is None:
        return set()
    return {str(_pulumi_name(cls, name)) for name in _parameters(cls)}


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    return {name: value for name, value in parameters.items() if name != "__self__"}


def _pulumi_name(cls: type, name: str) -> str:
    getter = inspect.getattr_static(cls, name)
    return str(getattr(getter.fget, "_pulumi_name", name))


@cache
def _object(cls: type) -> Schema:
    # pulumi.Input has "Output[T]" as a text.
    scope = {**vars(importlib.import_module(cls.__module__)), "Output": pulumi.Output, "T": Any}
    hints = typing.get_type_hints(cls.__init__, scope)  # type: ignore[misc]
    fields = {
        _pulumi_name(cls, name): [parameter.default is inspect.Parameter.empty, _schema(hints[name])]
        for name, parameter in _parameters(cls).items()
    }
    return {"object": fields}


def _schema(hint: Any) -> Schema:
    choices = [choice for choice in _choices(hint) if choice is not type(None)]
    for choice in choices:
        if isinstance(choice, type) and hasattr(choice, "_pulumi_input_type"):
            # A document is accepted as a text, too.
            return {**_object(choice), "text": str in choices}
        origin, arguments = typing.get_origin(choice), typing.get_args(choice)
        if origin is not None and issubclass(origin, Mapping):
            return {"map": _schema(arguments[1])}
        if origin is not None and issubclass(origin, Sequence):
            return {"list": _schema(arguments[0])}
    scalars = {choice for choice in choices if choice in (str, int, float, bool)}
    if choices and scalars and all(isinstance(choice, type) for choice in choices):
        return {"scalar": sorted(choice.__name__ for choice in scalars)}
    return {}


def _choices(hint: Any) -> Iterator[Any]:
    """Yield the alternatives of a type; awaitables and outputs stand for the type that they hold."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(hint):
            yield from _choices(choice)
    elif getattr(origin, "__name__", "") not in ("Awaitable", "Output"):
        yield hint


def problems(schema: Schema, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the reason of everything in ``value`` that the schema does not allow."""
    if value == UNKNOWN or value is None or not schema or is_asset(value):
        return
    if schema.get("text") and isinstance(value, str):
        return
    if "object" in schema:
        yield from _object_problems(schema["object"], value, path)
    elif "list" in schema:
        if not isinstance(value, list):
            yield path, f"must be a list, not {value!r}"
            return
        for index, item in enumerate(value):
            yield from problems(schema["list"], item, f"{path}[{index}]")
    elif "map" in schema:
        if not isinstance(value, Mapping):
            yield path, f"must be a map, not {value!r}"
            return
        for key, item in value.items():
            yield from problems(schema["map"], item, f"{path}.{key}")
    elif not _is_scalar(value, schema["scalar"]):
        yield path, f"must be {' or '.join(schema['scalar'])}, not {value!r}"


def _object_problems(fields: Mapping[str, Any], value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        yield path, f"must be an object, not {value!r}"
        return
    prefix = f"{path}." if path else ""
    for name, (required, _) in fields.items():
        if required and value.get(name) is None:
            yield f"{prefix}{name}", "missing, required"
    for name, item in value.items():
        if name not in fields:
            yield f"{prefix}{name}", "unknown input"
        else:
            yield from problems(fields[name][1], item, f"{prefix}{name}")


def _is_scalar(value: Any, names: Sequence[str]) -> bool:
    """Return whether the provider can convert a value: it reads numbers and booleans from texts, too."""
    if isinstance(value, (Mapping, list)):
        return False
    if "str" in names:
        return True
    if "bool" in names and (isinstance(value, bool) or value in ("true", "false")):
        return True
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return ("float" in names and is_number) or ("int" in names and isinstance(value, int) and is_number)
