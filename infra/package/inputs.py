"""Input types of the components: the keys of a stack file, from which Pulumi's SDK derives a schema.

The types are derived from the models in ``infra/schema/``, which also validate the inputs.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, Literal, Optional, Union, get_args, get_origin

import pulumi
from pulumi.output import Unknown
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from infra.schema import Settings
from infra.settings import PROJECT, SettingsError, load_settings

STACK_NAME: Final = "stackName"
"""The only input that is not a key of a stack file."""
_OPTIONAL_TEXT: Final = Optional[str]  # noqa: UP045 - the SDK reads typing.Optional
SHARED: Final = (
    *("network", "storage", "monitoring", "identity", "protect", "kmsKeyArn", "tags", "logRetentionDays"),
)
"""Keys of a stack file that a component of one entry takes in addition to the entry's own keys."""
_EXCLUDED_KEYS: Final = ("name", "runsOn", "nodes")
"""Keys of an entry that components do not take: the name is the component's, Kubernetes needs ``GpuSpot``."""
_TYPE_NAMES: Final = {"Service": "ServiceEntry", "Training": "TrainingEntry"}
"""Type names that differ from the name of the model: a type must not have a component's name."""


def stack_file_type() -> type:
    """Return the type of a whole stack file."""
    return _build_type("GpuSpotArgs", {**_keys(Settings, without=("region",)), STACK_NAME: _OPTIONAL_TEXT})


def entry_type(name: str, model: type[BaseModel], only: Collection[str] = ()) -> type:
    """Return the type of an entry, or of ``only`` some of its keys, with the shared keys."""
    keys = _keys(model, without=_EXCLUDED_KEYS)
    shared = {key: kind for key, kind in _keys(Settings).items() if key in SHARED}
    selected = {key: keys[key] for key in only or keys}
    return _build_type(name, {**selected, **shared, STACK_NAME: _OPTIONAL_TEXT})


def description(models: tuple[type[BaseModel], ...], key: str) -> str:
    """Return the description of a key in one line: its meaning, choices and default."""
    fields = _fields(models)[key]
    text = " ".join((fields[0].description or "").split())
    if choices := [choice for field in fields for choice in _choices(field.annotation)]:
        text += f" One of: {', '.join(map(str, choices))}."
    default = None if fields[0].is_required() else fields[0].default
    if isinstance(default, bool | int | float | str):
        text += f" Default: {str(default).lower() if isinstance(default, bool) else default}."
    return text


def models() -> dict[str, tuple[type[BaseModel], ...]]:
    """Return the models by their type name in the package's schema; a choice of models is one type."""
    by_name: dict[str, tuple[type[BaseModel], ...]] = {}
    pending = [*_inside((Settings,))]
    while pending:
        choice = pending.pop()
        if _type_name(choice) not in by_name:
            by_name[_type_name(choice)] = choice
            pending += _inside(choice)
    return by_name


def load_component_settings(region: str, values: Mapping[str, Any], entries: str = "") -> Settings:
    """Return the settings of a component; raise ``SettingsError``.

    Args:
        region: AWS Region of the component.
        values: inputs of the component, as a stack file has them.
        entries: key of the list whose entry the component is; empty for a whole stack file.
    """
    entry = {key: value for key, value in values.items() if key not in SHARED} if entries else {}
    raw = {f"{PROJECT}:{key}": value for key, value in values.items() if key not in entry}
    raw |= {"aws:region": region, f"{PROJECT}:services": raw.get(f"{PROJECT}:services", [])}
    if entries:
        raw[f"{PROJECT}:{entries}"] = [entry]
    try:
        return load_settings(raw)
    except SettingsError as error:
        lines = [_in_component(line, entries) for line in str(error).splitlines()]
        raise SettingsError("\n".join(lines)) from None


def _in_component(line: str, entries: str) -> str:
    """Return an error with the path of its key in the component."""
    return line.removeprefix(f"{PROJECT}:").removeprefix(f"{entries}[0].")


def to_plain(value: Any, path: str = "") -> Any:
    """Return inputs in the form of a stack file: whole numbers as integers, without nulls.

    Raises:
        SettingsError: a value is unknown in a preview, which would then not show all resources.
    """
    if isinstance(value, pulumi.Output | Unknown):
        raise SettingsError(f"{path} is an output of another resource; use a value known in a preview")
    if isinstance(value, Mapping):
        items = ((str(key), to_plain(v, f"{path}.{key}" if path else str(key))) for key, v in value.items())
        return {key: item for key, item in items if item is not None}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    # The engine's protocol has no integers.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _build_type(name: str, annotations: Mapping[str, Any]) -> type:
    # The SDK reads annotations, and keeps names without underscores. In a module with a source file it would
    # parse docstrings again for each key, which takes seconds at every start.
    return type(name, (), {"__annotations__": {**annotations}, "__module__": PROJECT})


def _fields(choice: tuple[type[BaseModel], ...]) -> dict[str, list[FieldInfo]]:
    """Return the fields of the models by key; a key may be in several of them."""
    fields: dict[str, list[FieldInfo]] = {}
    for model in choice:
        for name, field in model.model_fields.items():
            fields.setdefault(field.alias or name, []).append(field)
    return fields


def _keys(*choice: type[BaseModel], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the types of all keys of a model, or of several models that ``kind`` chooses from.

    The SDK does not support a choice of types: the type has the keys of all models, which check ``kind``.
    """
    keys: dict[str, Any] = {}
    for key, fields in _fields(choice).items():
        if key not in without:
            kind = _translated(Union[tuple(map(_accepted, fields))])  # noqa: UP007
            required = len(fields) == len(choice) and all(field.is_required() for field in fields)
            keys[key] = kind if required else Optional[kind]  # noqa: UP045 - `|` takes no Any
    return keys


def _accepted(field: FieldInfo) -> Any:
    """Return the type of what a key takes, which may be more than the model that it becomes."""
    for part in field.metadata:
        if isinstance(part, BeforeValidator) and _models_of(field.annotation):
            return part.json_schema_input_type
    return field.annotation


def _inside(choice: tuple[type[BaseModel], ...]) -> list[tuple[type[BaseModel], ...]]:
    """Return the models directly below a model; a choice of models is one item."""
    annotations = [Union[tuple(map(_accepted, fields))] for fields in _fields(choice).values()]  # noqa: UP007
    below = []
    while annotations:
        annotation = annotations.pop()
        if inside := _models_of(annotation):
            below.append(inside)
        elif not _takes_more_than_models(annotation):
            annotations += [argument for argument in get_args(annotation) if argument is not ...]
    return below


def _takes_more_than_models(annotation: Any) -> bool:
    """Return whether a key takes a model or another value: the SDK has no type for it (`_translated`)."""
    is_choice = get_origin(annotation) in (Union, types.UnionType)
    return is_choice and not _models_of(annotation) and any(map(_models_of, get_args(annotation)))


@cache
def _type(choice: tuple[type[BaseModel], ...]) -> type:
    built = _build_type(_type_name(choice), _keys(*choice))
    built.__doc__ = " ".join((choice[0].__doc__ or "").split())
    return built


def _type_name(choice: tuple[type[BaseModel], ...]) -> str:
    return _TYPE_NAMES.get(choice[0].__name__, choice[0].__name__)


def _translated(annotation: Any) -> Any:
    """Return a model's annotation as one that the SDK supports."""
    if inside := _models_of(annotation):
        return _type(inside)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _translated(arguments[0])
    if origin in (Union, types.UnionType):
        kinds = list({_translated(member) for member in arguments if member is not types.NoneType})
        return kinds[0] if len(kinds) == 1 else Any
    if origin is Literal:
        kinds = list({type(value) for value in arguments})
        return kinds[0] if len(kinds) == 1 else Any
    if origin is tuple:
        return list[_translated(arguments[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[str, _translated(arguments[1])]  # type: ignore[misc]
    return float if annotation is Decimal else annotation


def _models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the model that an annotation is, or the models of a choice; empty if it is neither."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        kinds = [_models_of(member) for member in get_args(annotation) if member is not types.NoneType]
        return tuple(model for kind in kinds for model in kind) if all(kinds) else ()
    return (annotation,) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()


def _choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    members = (member for member in get_args(annotation) if member is not types.NoneType)
    return next((choices for member in members if (choices := _choices(member))), ())
