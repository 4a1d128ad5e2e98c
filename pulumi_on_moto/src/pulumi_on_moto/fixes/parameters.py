"""Values that AWS's own models forbid: boto3 sends them, moto takes them, AWS refuses the call.

A model is what botocore ships for a service. boto3 itself holds a call to its names, types, required members
and lower bounds; here also to its enumerations, patterns and upper bounds.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import ClientError
from botocore.model import OperationModel
from botocore.validate import ParamValidationDecorator

from pulumi_on_moto.fixes.fix import Fix

REFUSED: Final[list[str]] = []
"""What was refused since the sandbox was opened, one line a call. Who wanted a refusal takes it out."""

# How a service calls it, by its protocol (what experience says; a service may have a code of its own).
_CODES: Final = {"ec2": "InvalidParameterValue", "query": "ValidationError", "rest-xml": "InvalidArgument"}

# The models' patterns are Java's: letters, separators and digits; characters above U+FFFF as their halves; a
# hyphen after a class of characters, which is itself.
_TO_PYTHON: Final = (
    (r"\p{L}\p{Z}\p{N}", r"\w\s"),
    (r"\w-", r"\w\-"),
    (r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"),
)


def faults(operation: OperationModel, params: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a call's parameters, in AWS's words; their names and types are the model's.

    What the model calls deprecated AWS still takes: it warns (``DeprecationWarning``).
    """
    if operation.deprecated:
        warnings.warn(f"{_name(operation)} is deprecated", DeprecationWarning, stacklevel=1)
    shape = operation.input_shape
    return list(_faults(shape, params, "")) if shape is not None else []


def _name(operation: OperationModel) -> str:
    return f"{operation.service_model.service_name}.{operation.name}"


def _faults(shape: Any, value: Any, path: str) -> Iterator[str]:
    rules, kind = shape.metadata, shape.type_name
    if shape._shape_model.get("deprecated"):  # the one trait that ``metadata`` leaves out
        warnings.warn(f"{path} ({shape.name}) is deprecated", DeprecationWarning, stacklevel=1)
    if kind == "structure" and "document" not in rules:
        members = shape.members
        for name, item in value.items():
            yield from _faults(members[name], item, f"{path}.{name}" if path else name)
        return
    if "max" in rules and (size := _size(kind, value)) is not None and size > rules["max"]:
        measure = "value" if size is value else "length"
        yield _fault(value, path, f"Member must have {measure} less than or equal to {rules['max']}")
    if kind == "list":
        for number, item in enumerate(value):
            yield from _faults(shape.member, item, f"{path}[{number}]")
    elif kind == "map":
        for key, item in value.items():
            yield from _faults(shape.key, key, f"{path} (key)")
            yield from _faults(shape.value, item, f"{path}.{key}")
    elif kind == "string" and isinstance(value, str):
        if "enum" in rules and value not in rules["enum"]:
            yield _fault(
                value, path, f"Member must satisfy enum value set: [{', '.join(sorted(rules['enum']))}]"
            )
        pattern = readable(rules["pattern"]) if "pattern" in rules else None
        if pattern is not None and not pattern.fullmatch(value):
            yield _fault(value, path, f"Member must satisfy regular expression pattern: {rules['pattern']}")


def _fault(value: Any, path: str, constraint: str) -> str:
    shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:97]}..."
    return f"Value {shown} at '{path}' failed to satisfy constraint: {constraint}"


def _size(kind: str, value: Any) -> Any:
    """Return what a value's upper bound is about: itself or its length; None for what has no length."""
    if kind in ("integer", "long", "float", "double"):
        return value
    return len(value) if hasattr(value, "__len__") else None


@lru_cache(None)
def readable(pattern: str) -> re.Pattern[str] | None:
    """Return a model's pattern for the whole of a value; None, and unchecked, where Python cannot read it."""
    text = pattern
    for theirs, ours in _TO_PYTHON:
        text = text.replace(theirs, ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a set that looks nested and means itself
            return re.compile(text, 0 if r"\p" in pattern else re.ASCII)
    except re.error:
        return None


def _held_to_the_model(serialize: Callable[..., Any]) -> Callable[..., Any]:
    def validated(validation: Any, parameters: Mapping[str, Any], operation_model: OperationModel) -> Any:
        request = serialize(validation, parameters, operation_model)
        try:
            violations = faults(operation_model, parameters)
        except DeprecationWarning as warning:  # an error where the process wants it so
            REFUSED.append(str(warning))
            raise
        if violations:
            number = "1 validation error" if len(violations) == 1 else f"{len(violations)} validation errors"
            text = f"{number} detected: {'; '.join(violations)}"
            REFUSED.append(f"AWS refuses {_name(operation_model)}: {text}")
            code = _CODES.get(operation_model.service_model.metadata["protocol"], "ValidationException")
            raise ClientError(
                {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}},  # type: ignore[typeddict-item]
                operation_model.name,
            )
        return request

    return validated


PARAMETERS: Final = Fix(
    "values that the model forbids",
    moto="takes most values outside of a service's enumerations, patterns and upper bounds",
    aws="refuses the call; here by botocore's model of the service, and what is deprecated in it warns",
    patches=(
        (
            ParamValidationDecorator,
            "serialize_to_request",
            _held_to_the_model(ParamValidationDecorator.serialize_to_request),
        ),
    ),
)
