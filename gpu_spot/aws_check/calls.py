"""The AWS operations that a test may call, read from its code: what a dry run shows."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import botocore.session
from botocore import xform_name

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.aws_test_bed import AwsTestBed

_PACKAGE: Final = "gpu_spot."


def operations(assumption: Assumption) -> list[str]:
    """Return ``service:Operation`` for each operation that the code of a test names, sorted.

    The code is the test's function with the functions of this package that it names, and their methods of
    ``AwsTestBed``. An operation of two named services is listed for both.
    """
    texts: set[str] = set()
    visited: set[Any] = set()
    _collect(assumption.run, texts, visited)
    return sorted(
        f"{service}:{operation}"
        for service in texts & _services()
        for method, operation in _operations(service).items()
        if method in texts
    )


def _collect(function: Callable[..., Any], texts: set[str], visited: set[Any]) -> None:
    if function in visited:
        return
    visited.add(function)
    for code in _codes(function.__code__):
        texts.update(code.co_names)
        texts.update(constant for constant in code.co_consts if isinstance(constant, str))
        constants = (function.__globals__.get(name) for name in code.co_names)
        texts.update(constant for constant in constants if isinstance(constant, str))
        for called in _named(code, function):
            _collect(called, texts, visited)
    for cell in function.__closure__ or ():
        _of_value(cell.cell_contents, texts, visited)


def _of_value(value: Any, texts: set[str], visited: set[Any]) -> None:
    if isinstance(value, str):
        texts.add(value)
    elif isinstance(value, types.FunctionType) and value.__module__.startswith(_PACKAGE):
        _collect(value, texts, visited)
    elif isinstance(value, tuple | list):
        for item in value:
            _of_value(item, texts, visited)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _named(code: types.CodeType, function: Callable[..., Any]) -> Iterator[types.FunctionType]:
    """Yield the functions of this package whose names are in the code."""
    names = function.__globals__
    owners = [AwsTestBed, *(names[n] for n in code.co_names if isinstance(names.get(n), types.ModuleType))]
    for name in code.co_names:
        for value in (names.get(name), *(vars(owner).get(name) for owner in owners)):
            value = getattr(value, "func", None) or getattr(value, "fget", None) or value
            if isinstance(value, types.FunctionType) and value.__module__.startswith(_PACKAGE):
                yield value


@cache
def _services() -> frozenset[str]:
    return frozenset(botocore.session.get_session().get_available_services())


@cache
def _operations(service: str) -> dict[str, str]:
    """Return the operations of a service by the name of their method."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(operation): operation for operation in model.operation_names}
