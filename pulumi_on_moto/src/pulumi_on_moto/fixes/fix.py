"""Definition of a fix of moto."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

Patch = tuple[type | ModuleType, str, Any]
"""Owner and name of a patched attribute, and its value while a sandbox is open."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A difference between moto 5.2.5 and AWS, fixed while a sandbox is open.

    Attributes:
        name: a few words.
        moto: what moto does.
        aws: what AWS does, and what of it is not simulated here.
        patches: the patched attributes of moto.
        known: a related issue or pull request of moto, and its relation.
    """

    name: str
    moto: str
    aws: str
    patches: tuple[Patch, ...]
    upstream_issue: str = "no issue found"


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply the patches while the body runs; attributes that moto lacks are added."""
    with contextlib.ExitStack() as stack:
        for target, name, replacement in patches:
            stack.enter_context(mock.patch.object(target, name, replacement, create=True))
        yield
