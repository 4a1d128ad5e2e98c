"""A resource that a run left, and how it is recognized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu_spot.aws_check.aws_test_bed import PREFIX, TAG


@dataclass(frozen=True, slots=True)
class Leftover:
    """An existing resource of a run. ``delete`` is None if its deletion is in progress."""

    description: str
    delete: Callable[[], Any] | None


def belongs_to(tags: list[dict[str, str]], run: str | None) -> bool:
    """Return whether a resource with these tags is of a run, or of any run."""
    return any(tag["Key"] == TAG and run in (None, tag["Value"]) for tag in tags)


def prefix(run: str | None) -> str:
    """Return how names of a run begin."""
    return PREFIX if run is None else f"{PREFIX}{run}-"


def list_all(client: Any, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    """Yield the items under ``key`` of all pages of a listing."""
    for page in client.get_paginator(operation).paginate(**arguments):
        yield from page.get(key, [])
