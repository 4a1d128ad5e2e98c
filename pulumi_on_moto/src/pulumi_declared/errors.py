"""The one error of a stack file, or of what is asked beside it."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user can mend; its text is one line that says what is allowed."""
