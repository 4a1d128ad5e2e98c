"""The only reader of the stack's configuration, and the one place that words its errors."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import pulumi
from pulumi.runtime import config as runtime_config
from pydantic import BaseModel, ValidationError

from infra.schema import Settings
from infra.schema.base import WrongKeyError

PROJECT: Final = "gpu-spot"
_REGION_KEY: Final = "aws:region"
_GIVEN_LIMIT: Final = 60
_CHOICE: Final = "kind"
"""The key by which one of several models is chosen."""

_MISSING: Final = "missing, it has no default"
_A_MAPPING: Final = "{given}, allowed: a mapping of keys"
_WHOLE: Final = "{given}, allowed: a whole number"
_EXPLAINED: Final[Mapping[str, str]] = {
    "missing": _MISSING,
    "union_tag_not_found": _MISSING,
    "value_error": "{error}",
    "literal_error": "{given}, allowed: {expected}",
    "string_pattern_mismatch": "{given}, allowed: what matches {pattern}",
    "greater_than_equal": "{given}, allowed: at least {ge}",
    "less_than_equal": "{given}, allowed: at most {le}",
    "string_too_short": "{given}, allowed: at least {min_length} characters",
    "string_too_long": "{given}, allowed: at most {max_length} characters",
    "too_short": "{given}, allowed: at least {min_length} of them",
    "too_long": "{given}, allowed: at most {max_length} of them",
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "string_type": (
        "{given}, allowed: text (YAML reads 07:00 and 1.20 as numbers unless they stand in quotes)"
    ),
    "model_type": _A_MAPPING,
    "model_attributes_type": _A_MAPPING,
    "dict_type": _A_MAPPING,
}
"""What is said of an error of pydantic, by its type; the names in it are of its context."""

_Location: TypeAlias = tuple[int | str, ...]


class SettingsError(pulumi.RunError):
    """A wrong setting, one line for each. The engine prints it without a traceback."""


def read_settings() -> Settings:
    """Return the settings of the running stack; raise ``SettingsError``."""
    # pulumi.Config answers for known keys only: a misspelt one must be seen, so the whole map is read.
    return load_settings({**runtime_config.get_config_env(), **runtime_config.CONFIG.get()})


def load_settings(raw: Mapping[str, Any]) -> Settings:
    """Return the settings in the ``config`` mapping of a stack file; raise ``SettingsError``.

    Keys carry their namespace (``gpu-spot:network``); other namespaces than ``gpu-spot`` and ``aws:region``
    are not ours and ignored. Values may be objects, or the JSON text that the engine passes.
    """
    prefix = f"{PROJECT}:"
    ours = {key.removeprefix(prefix): _decoded(raw[key]) for key in raw if key.startswith(prefix)}
    if "region" in ours:
        raise SettingsError(f"{PROJECT}:region: unknown key, the region is {_REGION_KEY}")
    if _REGION_KEY in raw:
        ours["region"] = raw[_REGION_KEY]
    try:
        # Through JSON: strict mode then takes lists for tuples, and still no "8" for 8.
        return Settings.model_validate_json(
            json.dumps(ours, default=str), context={"region": raw.get(_REGION_KEY, "")}
        )
    except ValidationError as error:
        raise SettingsError("\n".join(_lines(error.errors(include_url=False)))) from None


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _lines(errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    wrong_inside = {error["loc"][:length] for error in errors for length in range(len(error["loc"]))}
    for error in errors:
        if error["type"] == "default_factory_not_called":
            continue  # a default that hangs on another field, whose own error is there
        if error["type"] == "too_short" and error["loc"] in wrong_inside:
            continue  # what is wrong in a list is not counted in it
        # Of a choice between models pydantic names the choice, and not the key that makes it.
        chosen_by = (_CHOICE,) if error["type"].startswith("union_tag_") else ()
        told = error.get("ctx", {}).get("error")
        below = told.key if isinstance(told, WrongKeyError) else ()
        yield f"{_path((*error['loc'], *chosen_by, *below))}: {_explained(error)}"


def _path(location: _Location) -> str:
    if location == ("region",):
        return _REGION_KEY
    path = ""
    here: Any = Settings
    for part in location:
        if isinstance(part, int):
            path, here = f"{path}[{part}]", _element(here)
            continue
        if part == "[key]":  # the key of a mapping, which stands before it
            break
        if (chosen := _chosen(here, part)) is not None:
            here = chosen
            continue
        path += f".{_as_written(here, part)}" if path else _as_written(here, part)
        here = _fields(here).get(_as_written(here, part)) if _is_model(here) else None
    return f"{PROJECT}:{path}"


def _as_written(model: Any, part: str) -> str:
    """Return a key as YAML has it: pydantic names a wrong default by its field."""
    field = model.model_fields.get(part) if _is_model(model) else None
    return field.alias or part if field else part


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _explained(error: Mapping[str, Any]) -> str:
    given, context = _shown(error["input"]), error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        keys = _allowed_keys(error["loc"])
        near = get_close_matches(str(error["loc"][-1]), keys, n=1)
        return f"unknown key, {f'did you mean {near[0]}? ' if near else ''}allowed: {', '.join(keys)}"
    if error["type"] == "union_tag_invalid":
        return f"{_shown(context['tag'])}, allowed: {context['expected_tags']}"
    if (text := _EXPLAINED.get(error["type"])) is not None:
        return text.format(given=given, **context)
    return f"{given}, allowed: {error['msg'].removeprefix('Input should ').removeprefix('be ')}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _GIVEN_LIMIT else f"{text[:_GIVEN_LIMIT]}…"


def _allowed_keys(location: _Location) -> list[str]:
    """Return the keys of the model that holds the last part of ``location``, sorted."""
    here: Any = Settings
    for part in location[:-1]:
        here = (
            _element(here) if isinstance(part, int) else _chosen(here, str(part)) or _fields(here)[str(part)]
        )
    return sorted(key for key in _fields(here) if here is not Settings or key != "region")


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: _bare(field.annotation) for name, field in model.model_fields.items()}


def _bare(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``| None`` from an annotation."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (types.UnionType, Union):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation


def _chosen(annotation: Any, tag: str) -> type[BaseModel] | None:
    """Return the model of a choice that ``tag`` stands for; None where there is none to make."""
    models: list[type[BaseModel]] = [member for member in get_args(annotation) if _is_model(member)]
    return next((one for one in models if tag in get_args(_fields(one).get(_CHOICE))), None)


def _element(annotation: Any) -> Any:
    arguments = get_args(annotation)
    return _bare(arguments[0]) if arguments else None
