"""The error for an invalid stack file or argument."""

from __future__ import annotations


class UserError(Exception):
    """An error that the user can fix; its message is one line with the allowed values."""
