"""Recorded markets that ``--trace`` names; what is wrong with one is told with the option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from market.supply import trace
from market.supply.trace import PoolTrace, TraceError


def load(paths: Iterable[Path]) -> tuple[PoolTrace, ...]:
    """Return the pools that ``--trace`` names; raise ``TraceError``."""
    with named():
        return trace.load(paths)


@contextmanager
def named() -> Iterator[None]:
    """Name the option in what the body says of a trace."""
    try:
        yield
    except TraceError as error:
        raise TraceError(f"--trace: {error}") from None
