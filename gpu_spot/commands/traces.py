"""Traces that ``--trace`` names; an error names the option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from market.supply import trace
from market.supply.trace import PoolTrace, TraceError


def load(paths: Iterable[Path]) -> tuple[PoolTrace, ...]:
    """Return the capacity pools that ``--trace`` names. Raises ``TraceError``."""
    with name_option():
        return trace.load(paths)


@contextmanager
def name_option() -> Iterator[None]:
    """Prefix a ``TraceError`` of the body with the option."""
    try:
        yield
    except TraceError as error:
        raise TraceError(f"--trace: {error}") from None
