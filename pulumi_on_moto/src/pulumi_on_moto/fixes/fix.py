"""What a fix of moto is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

Patch = tuple[type | ModuleType, str, Any]
"""Where it is, its name, and what stands there while a sandbox is open."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing that moto 5.2.5 does otherwise than AWS, put right while a sandbox is open.

    Attributes:
        name: a few words.
        moto: what moto does.
        aws: what AWS does, and where less is done here, what.
        patches: what is replaced in moto.
        known: moto's own issue or pull request, and what it has to do with it.
    """

    name: str
    moto: str
    aws: str
    patches: tuple[Patch, ...]
    upstream_issue: str = "no issue found"


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Replace what the patches name while the body runs; what is missing in moto is added."""
    with contextlib.ExitStack() as stack:
        for target, name, replacement in patches:
            stack.enter_context(mock.patch.object(target, name, replacement, create=True))
        yield
