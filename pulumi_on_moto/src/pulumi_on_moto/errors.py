"""The one error of the local cloud."""

from __future__ import annotations

from pulumi_declared.errors import UserError


class LocalCloudError(UserError):
    """Something that the local cloud cannot carry out; its text is one line for the user."""
