"""Differences between moto 5.2.5 and AWS, each fixed while a sandbox is open: docs/fixes.md lists them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from unittest import mock

from moto.core.exceptions import ServiceException
from moto.core.responses import BaseResponse

Patch = tuple[type | ModuleType, str, Any]
"""Owner and name of a patched attribute, and its value while a sandbox is open."""
Patches = tuple[Patch, ...]


class RefusedError(ServiceException):
    """AWS's refusal of a call: the error's code and its message."""


def around(owner: type | ModuleType, name: str, wrapper: Callable[..., Any]) -> Patch:
    """Return the patch with which a function of moto calls ``wrapper(original, *arguments)`` instead."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        return wrapper(original, *arguments, **keywords)

    return owner, name, wrapped


def local(owner: Any, name: str, default: Any = None) -> Any:
    """Return what is kept with an object of moto for the local cloud; ``default`` is kept if nothing is."""
    return vars(owner).setdefault(f"local_{name}", default)


def set_local(owner: Any, name: str, value: Any) -> None:
    """Keep a value with an object of moto; ``local`` returns it."""
    vars(owner)[f"local_{name}"] = value


def naive(at: datetime | None) -> datetime | None:
    """Return a time of a request as moto has times, in UTC without a time zone."""
    return at if at is None or at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None)


def page(response: BaseResponse, key: str, items: list[Any], parameter: str, limit: int) -> dict[str, Any]:
    """Return the requested page of a describe operation, with the token of the next one.

    ``parameter`` is the request's page size; ``limit`` its default and maximum.
    """
    start = int(response._get_param("NextToken") or 0)
    end = start + min(response._get_int_param(parameter) or limit, limit)
    return {key: items[start:end], "NextToken": str(end) if len(items) > end else None}


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply the patches while the body runs; attributes that moto lacks are added."""
    with contextlib.ExitStack() as stack:
        for target, name, replacement in patches:
            stack.enter_context(mock.patch.object(target, name, replacement, create=True))
        yield
