"""Values that AWS's models forbid: boto3 sends them, moto accepts them, AWS rejects the call.

The models are botocore's. boto3 validates names, types, required members and lower bounds; this module also
validates enumerations, patterns and upper bounds.
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

from pulumi_on_moto.fixes import Patches, around

REFUSED: Final[list[str]] = []
"""Rejected calls since the sandbox was opened, one line each. A test that expects one removes it."""

# Error code by protocol (from experience; a service may have its own code).
_CODES: Final = {"ec2": "InvalidParameterValue", "query": "ValidationError", "rest-xml": "InvalidArgument"}

# The models' patterns are in Java's syntax: letters, separators and digits; characters above U+FFFF as
# surrogate pairs; a literal hyphen after a character class.
_TO_PYTHON: Final = (
    (r"\p{L}\p{Z}\p{N}", r"\w\s"),
    (r"\w-", r"\w\-"),
    (r"\p{ASCII}", r"[\x00-\x7F]"),
    (r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"),
)


def faults(operation: OperationModel, params: Mapping[str, Any]) -> list[str]:
    """Return the errors of a call's parameters in AWS's words; their names and types are valid.

    AWS accepts deprecated parameters: they cause a ``DeprecationWarning``.
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
    """Return the value that an upper bound limits: the number or the length; None without a length."""
    if kind in ("integer", "long", "float", "double"):
        return value
    return len(value) if hasattr(value, "__len__") else None


@lru_cache(None)
def readable(pattern: str) -> re.Pattern[str] | None:
    """Return a model's pattern for a whole value; None, unchecked, if Python cannot parse it."""
    text = pattern
    for theirs, ours in _TO_PYTHON:
        text = text.replace(theirs, ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a set that looks nested but is literal
            return re.compile(text, 0 if r"\p" in pattern else re.ASCII)
    except re.error:
        return None


def _serialize(
    serialize: Callable[..., Any], validation: Any, parameters: Mapping[str, Any], operation: OperationModel
) -> Any:
    request = serialize(validation, parameters, operation)
    try:
        violations = faults(operation, parameters)
    except DeprecationWarning as warning:  # an error if the process enables that
        REFUSED.append(str(warning))
        raise
    if violations:
        number = "1 validation error" if len(violations) == 1 else f"{len(violations)} validation errors"
        text = f"{number} detected: {'; '.join(violations)}"
        REFUSED.append(f"AWS refuses {_name(operation)}: {text}")
        code = _CODES.get(operation.service_model.metadata["protocol"], "ValidationException")
        reply: Any = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        raise ClientError(reply, operation.name)
    return request


PATCHES: Final[Patches] = (around(ParamValidationDecorator, "serialize_to_request", _serialize),)
