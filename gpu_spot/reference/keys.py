"""The keys of a stack file, model by model, in the order in which a file has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.schema import Settings

REGION: Final = "region"
"""A stack's setting that stands in the file under Pulumi's own key, ``aws:region``."""


@dataclass(frozen=True)
class Key:
    """One key: ``rule`` is JSON Schema's of its value, ``about`` what it means.

    ``default`` is None where it must be given, and where it follows from others (``follows``).
    """

    name: str
    rule: Mapping[str, Any]
    about: str
    is_needed: bool
    default: Any = None
    follows: bool = False


@dataclass(frozen=True)
class Section:
    """A model of the schema: its ``$ref``, the paths where it stands, what it is, its keys."""

    ref: str
    places: tuple[str, ...]
    about: str
    keys: tuple[Key, ...]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of what stands under ``gpu-spot:``, descriptions and all."""
    return Settings.model_json_schema()


def sections(root: Mapping[str, Any]) -> list[Section]:
    """Return every model once, where a file has it first, with all its places; the whole file first."""
    places: dict[str, list[str]] = {}
    for ref, path in _places(root, root, ""):
        places.setdefault(ref, []).append(path)
    whole = Section("", (), "", tuple(_keys(root, root)))
    return [whole, *(_section(root, ref, tuple(paths)) for ref, paths in places.items())]


def _section(root: Mapping[str, Any], ref: str, places: tuple[str, ...]) -> Section:
    found = _model(root, ref)
    return Section(ref, places, found.get("description", ""), tuple(_keys(root, found)))


def _model(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = root["$defs"][ref.rpartition("/")[2]]
    return found


def _keys(root: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Key]:
    needed = model.get("required", ())
    for name, rule in model["properties"].items():
        if model is root and name == REGION:
            continue
        given = "default" in rule
        follows = name not in needed and not given and not _is_collection(rule)
        yield Key(name, rule, _about(root, rule), name in needed, rule.get("default"), follows)


def _about(root: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    """Return what a key means; pydantic leaves it out where it is what the model below says of itself."""
    told: str = rule.get("description", "")
    return told or next((_model(root, ref).get("description", "") for ref, _ in _refs(rule, "")), "")


def _is_collection(rule: Mapping[str, Any]) -> bool:
    return rule.get("type") in ("object", "array")


def _places(root: Mapping[str, Any], here: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield each model that a file can hold and where, depth first."""
    for name, rule in here.get("properties", {}).items():
        for ref, place in _refs(rule, f"{path}.{name}".lstrip(".")):
            yield ref, place
            yield from _places(root, _model(root, ref), place)


def _refs(rule: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if "$ref" in rule:
        yield rule["$ref"], path
    if kinds := rule.get("discriminator", {}).get("mapping"):
        for kind, ref in kinds.items():
            yield ref, f"{path} ({kind})"
        return
    for one in (*rule.get("anyOf", ()), *rule.get("oneOf", ())):
        yield from _refs(one, path)
    if "items" in rule:
        yield from _refs(rule["items"], f"{path}[]")
