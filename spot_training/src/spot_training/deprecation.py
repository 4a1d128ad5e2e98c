"""Deprecated names: kept as aliases for one minor version."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated_name(old: str, new: str) -> None:
    """Warn that ``old`` is deprecated in favour of ``new``, at the caller of the function that calls this."""
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)


def renamed_arguments(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that accepts keyword arguments by their old names; ``names``: old=new."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            for old, new in names.items():
                if old in options:
                    if new in options:
                        raise TypeError(f"{function.__qualname__}() got both {new} and its old name {old}")
                    warnings.warn(
                        f"argument {old} of {function.__qualname__} is deprecated, use {new}",
                        DeprecationWarning,
                        stacklevel=2,
                    )
                    options[new] = options.pop(old)
            return function(*arguments, **options)

        return call

    return decorate


def module_alias(module: str, aliases: dict[str, tuple[str, Any]]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` for deprecated names: old name → (new name, object)."""

    def get(name: str) -> Any:
        if name not in aliases:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = aliases[name]
        warnings.warn(f"{module}.{name} is deprecated, use {new}", DeprecationWarning, stacklevel=2)
        return value

    return get
