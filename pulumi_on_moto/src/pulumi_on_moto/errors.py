"""The error of the local cloud."""

from __future__ import annotations

from pulumi_declared.errors import UserError


class LocalCloudError(UserError):
    """An operation that the local cloud cannot perform; its message is one line for the user."""
