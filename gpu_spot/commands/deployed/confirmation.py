"""Asks for confirmation on the terminal before a change that cannot be undone."""

from __future__ import annotations

import sys


def confirm(question: str, cancelled: str, error: type[ValueError]) -> None:
    """Ask ``question`` on stderr. Raises ``error`` without a terminal, or with ``cancelled`` unless yes."""
    if not sys.stdin.isatty():
        raise error("standard input is not a terminal, so confirmation is impossible; use --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise error(cancelled)
