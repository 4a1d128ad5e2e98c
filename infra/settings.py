"""Reading of the stack's configuration: the only reader of ``pulumi.Config``, and the text of its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

import pulumi
from pulumi.runtime import config as runtime_config
from pydantic import ValidationError

from contracts.sentences import alternatives, sentence
from infra.schema import Settings
from infra.schema.access import plain_keys
from infra.schema.base import WrongKeyError
from infra.schema.model_tree import CHOICE_KEY, chosen_model, element_type, is_model, key_types

PROJECT: Final = "gpu-spot"
_REGION_KEY: Final = "aws:region"
_MAX_VALUE_LENGTH: Final = 60

_MISSING: Final = "is required and has no default; set it"
_NOT_A_MAPPING: Final = "must be a mapping of keys, not {value}"
_NOT_A_WHOLE_NUMBER: Final = "must be a whole number, not {value}"
_TEXTS: Final[Mapping[str, str]] = {
    "missing": _MISSING,
    "union_tag_not_found": _MISSING,
    "value_error": "{error}",
    "literal_error": "must be {expected}, not {value}",
    "string_pattern_mismatch": "must match the pattern {pattern}, unlike {value}",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    "string_too_short": "must have {min_length} or more characters, unlike {value}",
    "string_too_long": "must have {max_length} or fewer characters, unlike {value}",
    "too_short": "must have {min_length} or more entries, unlike {value}",
    "too_long": "must have {max_length} or fewer entries, unlike {value}",
    "int_type": _NOT_A_WHOLE_NUMBER,
    "int_from_float": _NOT_A_WHOLE_NUMBER,
    "int_parsing": _NOT_A_WHOLE_NUMBER,
    "float_type": "must be a number, not {value}",
    "bool_type": "must be true or false, not {value}",
    "tuple_type": "must be a list, not {value}",
    "string_type": "must be text, not {value}; quote values that YAML reads as numbers, such as 1.10",
    "model_type": _NOT_A_MAPPING,
    "model_attributes_type": _NOT_A_MAPPING,
    "dict_type": _NOT_A_MAPPING,
}
"""Message by the type of pydantic's error; the fields are the error's context, and ``value``."""


Location: TypeAlias = tuple[int | str, ...]
"""Keys and list indices that lead to a value."""


class SettingsError(pulumi.RunError, ValueError):
    """Invalid settings, one line for each error. The engine prints it without a traceback."""


def read_settings() -> Settings:
    """Return the settings of the running stack; raise ``SettingsError``."""
    # pulumi.Config returns known keys only. Read the whole map to find misspelt keys.
    raw = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    return load_settings(raw)


def load_settings(raw: Mapping[str, Any]) -> Settings:
    """Return the settings in the ``config`` mapping of a stack file.

    Keys have their namespace (``gpu-spot:network``). Keys of other namespaces are ignored, except
    ``aws:region``. Values are objects, or JSON text as the engine passes it.

    Raises:
        SettingsError: a key or value is not allowed.
    """
    prefix = f"{PROJECT}:"
    values = {key.removeprefix(prefix): _decode(raw[key]) for key in raw if key.startswith(prefix)}
    if "region" in values:
        raise SettingsError(f"{PROJECT}:region is not a known key; set {_REGION_KEY} instead.")
    if _REGION_KEY in raw:
        values["region"] = raw[_REGION_KEY]
    if lines := [sentence(f"{prefix}{path}", text) for path, text in plain_keys(values)]:
        raise SettingsError("\n".join(lines))
    try:
        # From JSON, strict mode accepts lists for tuples, but still no "8" for 8.
        return Settings.model_validate_json(
            json.dumps(values, default=str), context={"region": raw.get(_REGION_KEY, "")}
        )
    except ValidationError as error:
        raise SettingsError("\n".join(_lines(error.errors(include_url=False)))) from None


def _decode(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _lines(errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each error: the path of the key, and the message."""
    parents = {error["loc"][:length] for error in errors for length in range(len(error["loc"]))}
    for error in errors:
        if error["type"] == "default_factory_not_called":
            continue  # the default depends on another field, which has an error of its own
        if error["type"] == "too_short" and error["loc"] in parents:
            continue  # pydantic does not count the invalid items of a list
        # For a choice of models, pydantic names the choice instead of the key that makes it.
        choice = (CHOICE_KEY,) if error["type"].startswith("union_tag_") else ()
        cause = error.get("ctx", {}).get("error")
        below = cause.key if isinstance(cause, WrongKeyError) else ()
        yield sentence(_path((*error["loc"], *choice, *below)), _message(error))


def _path(location: Location) -> str:
    """Return the path of an error as a stack file has it: without pydantic's tags."""
    if location == ("region",):
        return _REGION_KEY
    path = ""
    annotation: Any = Settings
    for part in location:
        if isinstance(part, int):
            path, annotation = f"{path}[{part}]", element_type(annotation)
            continue
        if part == "[key]":  # the error is in the key of a mapping, which precedes this part
            break
        if (model := chosen_model(annotation, part)) is not None:
            annotation = model
            continue
        key = _key_of_field(annotation, part)
        path += f".{key}" if path else key
        annotation = key_types(annotation).get(key) if is_model(annotation) else None
    return f"{PROJECT}:{path}" if path else PROJECT


def _key_of_field(model: Any, part: str) -> str:
    """Return the key of a part of a location: for an invalid default, pydantic names the field."""
    field = model.model_fields.get(part) if is_model(model) else None
    return field.alias or part if field else part


def _message(error: Mapping[str, Any]) -> str:
    value, context = _shortened(error["input"]), error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        return _unknown_key(error["loc"])
    if error["type"] == "union_tag_invalid":
        tags = alternatives(context["expected_tags"].split(", "))
        return f"must be {tags}, not {_shortened(context['tag'])}"
    if (text := _TEXTS.get(error["type"])) is not None:
        return text.format(value=value, **context)
    return f"must {error['msg'].removeprefix('Input should ').removeprefix('Value should ')}, not {value}"


def _shortened(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


def _unknown_key(location: Location) -> str:
    model, key = _model_at(location[:-1]), str(location[-1])
    keys = sorted(name for name in key_types(model) if model is not Settings or name != "region")
    near = get_close_matches(key, keys, n=1)
    guess = f"did you mean {near[0]}? The" if near else "the"
    return f"is not a known key; {guess} known keys are {', '.join(keys)}"


def _model_at(location: Location) -> Any:
    """Return the model at a location as pydantic reports it."""
    annotation: Any = Settings
    for part in location:
        if isinstance(part, int):
            annotation = element_type(annotation)
        else:
            annotation = chosen_model(annotation, part) or key_types(annotation)[part]
    return annotation
