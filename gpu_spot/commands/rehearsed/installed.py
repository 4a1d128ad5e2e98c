"""Imports of the optional package `rehearsal`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pulumi_declared.errors import UserError


@contextmanager
def rehearsal_installed() -> Iterator[None]:
    """Turn a failed import in the body into a ``UserError``."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is missing, but rehearsals need it: run `make setup` in a clone"
        ) from None
