"""What the components take: the keys of a stack file, as types from which Pulumi's SDK makes a schema.

Nothing is said twice: the types follow from the models in ``infra/schema/``, and these judge what is given.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, Literal, Optional, Union, get_args, get_origin

import pulumi
from pulumi.output import Unknown
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.schema import Settings
from infra.settings import PROJECT, SettingsError, load_settings

STACK_NAME: Final = "stackName"
"""The one key that no stack file has."""
_TEXT: Final = Optional[str]  # noqa: UP045 - an object here, as all others are
SHARED: Final = (
    *("network", "storage", "monitoring", "identity", "protect", "kmsKeyArn", "tags", "logRetentionDays"),
)
"""The keys of a stack file that stand beside an entry of it."""
_NOT_OF_ONE: Final = ("name", "runsOn", "nodes")
"""An entry's name is its component's; what runs on Kubernetes needs the cluster beside it."""
_RENAMED: Final = {"Service": "ServiceEntry", "Training": "TrainingEntry"}
"""A component and a type of one name would be one class in some languages."""


def of_stack_file() -> type:
    """Return the type of all that a stack file says."""
    return _made("GpuSpotArgs", {**_keys(Settings, without=("region",)), STACK_NAME: _TEXT})


def of_entry(name: str, model: type[BaseModel], only: Collection[str] = ()) -> type:
    """Return the type of one entry, or of ``only`` some of its keys, with what stands beside it."""
    own = _keys(model, without=_NOT_OF_ONE)
    shared = {key: given for key, given in _keys(Settings).items() if key in SHARED}
    return _made(name, {**{key: own[key] for key in only or own}, **shared, STACK_NAME: _TEXT})


def description(models: tuple[type[BaseModel], ...], key: str) -> str:
    """Return what the schema says of a key, in one line: its meaning, choices and default."""
    fields = _fields(models)[key]
    text = " ".join((fields[0].description or "").split())
    if choices := [one for field in fields for one in _choices(field.annotation)]:
        text += f" One of: {', '.join(map(str, choices))}."
    default = None if fields[0].is_required() else fields[0].default
    if isinstance(default, bool | int | float | str):
        text += f" Default: {str(default).lower() if isinstance(default, bool) else default}."
    return text


def models() -> dict[str, tuple[type[BaseModel], ...]]:
    """Return the models by the name of their type in the package's schema; a choice of models has all."""
    found: dict[str, tuple[type[BaseModel], ...]] = {}
    waiting = [*_inside((Settings,))]
    while waiting:
        choice = waiting.pop()
        if _type_name(choice) not in found:
            found[_type_name(choice)] = choice
            waiting += _inside(choice)
    return found


def settings(region: str, given: Mapping[str, Any], entries: str = "") -> Settings:
    """Return the settings that a component's arguments mean; raise ``SettingsError``.

    ``entries`` is the list of a stack file whose one entry they are, with what stands beside it.
    """
    entry = {key: value for key, value in given.items() if key not in SHARED} if entries else {}
    given = {key: value for key, value in given.items() if key not in entry}
    raw = {f"{PROJECT}:{key}": value for key, value in given.items()}
    raw |= {"aws:region": region, f"{PROJECT}:services": raw.get(f"{PROJECT}:services", [])}
    if entries:
        raw[f"{PROJECT}:{entries}"] = [entry]
    try:
        return load_settings(raw)
    except SettingsError as wrong:
        lines = str(wrong).removeprefix(f"{PROJECT}:").replace(f"\n{PROJECT}:", "\n").splitlines()
        lines = [line.removeprefix(f"{entries}[0].") for line in lines]
        raise SettingsError("\n".join(lines)) from None


def plain(value: Any, path: str = "") -> Any:
    """Return arguments as a stack file holds them: whole numbers whole, nothing that is absent.

    Raises ``SettingsError`` for what only an update knows: a preview that knew less would show less.
    """
    if isinstance(value, pulumi.Output | Unknown):
        raise SettingsError(f"{path}: an output of another resource, allowed: values that a preview knows")
    if isinstance(value, Mapping):
        inside = {str(key): plain(one, f"{path}.{key}" if path else str(key)) for key, one in value.items()}
        return {key: one for key, one in inside.items() if one is not None}
    if isinstance(value, list | tuple):
        return [plain(one, f"{path}[{index}]") for index, one in enumerate(value)]
    # The engine's protocol has no whole numbers.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _made(name: str, annotations: Mapping[str, Any]) -> type:
    # The SDK reads annotations, and takes a name without an underscore as it is. In a module with a source it
    # would look for docstrings, anew for each key: seconds at every start.
    return type(name, (), {"__annotations__": {**annotations}, "__module__": PROJECT})


def _fields(choice: tuple[type[BaseModel], ...]) -> dict[str, list[FieldInfo]]:
    """Return what the models say of each key of any of them."""
    found: dict[str, list[FieldInfo]] = {}
    for model in choice:
        for name, field in model.model_fields.items():
            found.setdefault(field.alias or name, []).append(field)
    return found


def _keys(*choice: type[BaseModel], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the types of all keys of a model, or of several that a ``kind`` chooses from.

    The SDK knows no choice between types; which keys go with which ``kind`` the models say.
    """
    found: dict[str, Any] = {}
    for key, fields in _fields(choice).items():
        if key not in without:
            kind = _translated(Union[tuple(field.annotation for field in fields)])  # noqa: UP007
            needed = len(fields) == len(choice) and all(field.is_required() for field in fields)
            found[key] = kind if needed else Optional[kind]  # noqa: UP045 - `|` takes no Any
    return found


def _inside(choice: tuple[type[BaseModel], ...]) -> list[tuple[type[BaseModel], ...]]:
    """Return the models below one, each choice of them once."""
    annotations = [Union[tuple(f.annotation for f in fields)] for fields in _fields(choice).values()]  # noqa: UP007
    found = []
    while annotations:
        annotation = annotations.pop()
        if inside := _models_of(annotation):
            found.append(inside)
        else:
            annotations += [one for one in get_args(annotation) if one is not ...]
    return found


@cache
def _type(choice: tuple[type[BaseModel], ...]) -> type:
    made = _made(_type_name(choice), _keys(*choice))
    made.__doc__ = " ".join((choice[0].__doc__ or "").split())
    return made


def _type_name(choice: tuple[type[BaseModel], ...]) -> str:
    return _RENAMED.get(choice[0].__name__, choice[0].__name__)


def _translated(annotation: Any) -> Any:
    """Return an annotation of a model as one that the SDK knows."""
    if inside := _models_of(annotation):
        return _type(inside)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _translated(arguments[0])
    if origin in (Union, types.UnionType):
        kinds = list({_translated(one) for one in arguments if one is not types.NoneType})
        return kinds[0] if len(kinds) == 1 else Any
    if origin is Literal:
        kinds = list({type(one) for one in arguments})
        return kinds[0] if len(kinds) == 1 else Any
    if origin is tuple:
        return list[_translated(arguments[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[str, _translated(arguments[1])]  # type: ignore[misc]
    return float if annotation is Decimal else annotation


def _models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the model that an annotation is, or those that it lets choose from."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        kinds = [_models_of(one) for one in get_args(annotation) if one is not types.NoneType]
        return tuple(one for kind in kinds for one in kind) if all(kinds) else ()
    return (annotation,) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()


def _choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    inside = (one for one in get_args(annotation) if one is not types.NoneType)
    return next((found for one in inside if (found := _choices(one))), ())
