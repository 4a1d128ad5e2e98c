"""What rehearses is imported where a command needs it, and may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pulumi_declared.errors import UserError


@contextmanager
def installed() -> Iterator[None]:
    """Import what rehearses in the body; raise ``UserError`` where something is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is missing, with which this machine rehearses: `make setup` in a clone installs it"
        ) from None
