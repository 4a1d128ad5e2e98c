"""Differences between moto 5.2.5 and AWS, each fixed while a sandbox is open: docs/fixes.md lists them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

Patch = tuple[type | ModuleType, str, Any]
"""Owner and name of a patched attribute, and its value while a sandbox is open."""
Patches = tuple[Patch, ...]


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply the patches while the body runs; attributes that moto lacks are added."""
    with contextlib.ExitStack() as stack:
        for target, name, replacement in patches:
            stack.enter_context(mock.patch.object(target, name, replacement, create=True))
        yield
