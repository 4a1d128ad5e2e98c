"""The keys of a stack file ``Pulumi.<env>.yaml``: by model, in file order, and as a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.schema import Settings

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
REGION: Final = "region"
"""The setting that a stack file has under Pulumi's own key ``aws:region``."""


@dataclass(frozen=True)
class Key:
    """A key: ``rule`` is the JSON Schema of its value, ``about`` its description.

    ``default`` is None if the key is required, and if its default depends on other keys (``follows``).
    """

    name: str
    rule: Mapping[str, Any]
    about: str
    is_needed: bool
    default: Any = None
    follows: bool = False


@dataclass(frozen=True)
class Section:
    """A model of the schema: its ``$ref``, the paths where it occurs, its description, its keys."""

    ref: str
    paths: tuple[str, ...]
    about: str
    keys: tuple[Key, ...]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the keys under ``gpu-spot:``, with descriptions."""
    return Settings.model_json_schema()


def stack_file() -> dict[str, Any]:
    """Return the schema: ``config`` with the keys of ``gpu-spot:`` and ``aws:region``.

    Unknown ``gpu-spot:`` keys are rejected; other namespaces are free. Constraints between keys are checked
    by the program only.
    """
    settings = schema()
    properties = {f"gpu-spot:{name}": rule for name, rule in settings["properties"].items() if name != REGION}
    return {
        "$schema": _DRAFT,
        "title": "A stack file of gpu-spot",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {"aws:region": settings["properties"][REGION], **properties},
                "propertyNames": {"anyOf": [{"enum": [*properties]}, {"not": {"pattern": "^gpu-spot:"}}]},
                "required": ["aws:region", *(f"gpu-spot:{n}" for n in settings["required"] if n != REGION)],
            }
        },
        "required": ["config"],
        "$defs": settings["$defs"],
    }


def sections(root: Mapping[str, Any]) -> list[Section]:
    """Return every model once, with all its paths, in the order of first occurrence; the root first."""
    paths_by_ref: dict[str, list[str]] = {}
    for ref, path in _model_paths(root, root, ""):
        paths_by_ref.setdefault(ref, []).append(path)
    whole = Section("", (), "", tuple(_keys(root, root)))
    return [
        whole,
        *(_section(root, ref, tuple(section_paths)) for ref, section_paths in paths_by_ref.items()),
    ]


def _section(root: Mapping[str, Any], ref: str, paths: tuple[str, ...]) -> Section:
    model = _model(root, ref)
    return Section(ref, paths, model.get("description", ""), tuple(_keys(root, model)))


def _model(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    model: Mapping[str, Any] = root["$defs"][ref.rpartition("/")[2]]
    return model


def _keys(root: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Key]:
    needed = model.get("required", ())
    for name, rule in model["properties"].items():
        if model is root and name == REGION:
            continue
        has_default = "default" in rule
        follows = name not in needed and not has_default and not _is_collection(rule)
        yield Key(name, rule, _about(root, rule), name in needed, rule.get("default"), follows)


def _about(root: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    """Return a key's description; pydantic omits it if it equals the description of the model."""
    description: str = rule.get("description", "")
    return description or next((_model(root, ref).get("description", "") for ref, _ in _refs(rule, "")), "")


def _is_collection(rule: Mapping[str, Any]) -> bool:
    return rule.get("type") in ("object", "array")


def _model_paths(root: Mapping[str, Any], model: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield each model that a file can contain with its path, depth first."""
    for name, rule in model.get("properties", {}).items():
        for ref, nested_path in _refs(rule, f"{path}.{name}".lstrip(".")):
            yield ref, nested_path
            yield from _model_paths(root, _model(root, ref), nested_path)


def _refs(rule: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if "$ref" in rule:
        yield rule["$ref"], path
    if kinds := rule.get("discriminator", {}).get("mapping"):
        for kind, ref in kinds.items():
            yield ref, f"{path} ({kind})"
        return
    for alternative in (*rule.get("anyOf", ()), *rule.get("oneOf", ())):
        yield from _refs(alternative, path)
    if "items" in rule:
        yield from _refs(rule["items"], f"{path}[]")
