"""Former names of arguments and attributes, accepted for one minor version with a ``DeprecationWarning``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def renamed(**names: str) -> Callable[[_Class], _Class]:
    """Return a class decorator that accepts former names; each argument is ``former="current"``."""

    def decorate(cls: _Class) -> _Class:
        init = cls.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def with_former_names(self: Any, *args: Any, **kwargs: Any) -> None:
            for former in names.keys() & kwargs.keys():
                if names[former] in kwargs:
                    raise TypeError(f"{cls.__name__}() got both {names[former]} and its former name {former}")
                warn(f"{cls.__name__}({former}=…)", f"{names[former]}=…", stacklevel=3)
                kwargs[names[former]] = kwargs.pop(former)
            init(self, *args, **kwargs)

        cls.__init__ = with_former_names  # type: ignore[misc]
        for former, current in names.items():
            setattr(cls, former, _FormerAttribute(former, current))
        return cls

    return decorate


def warn(former: str, current: str, stacklevel: int = 2) -> None:
    """Warn the caller of the calling function that a name is deprecated."""
    warnings.warn(f"{former} is deprecated, use {current}", DeprecationWarning, stacklevel + 1)


class _FormerAttribute:
    """Reads an attribute, of a class or an instance, by its former name."""

    def __init__(self, former: str, current: str) -> None:
        self._former = former
        self._current = current

    def __get__(self, instance: object, owner: type) -> Any:
        warn(f"{owner.__name__}.{self._former}", self._current)
        return getattr(owner if instance is None else instance, self._current)
