"""The error of the local cloud."""

from __future__ import annotations


class LocalCloudError(ValueError):
    """What the local cloud cannot perform, or a stack file that is wrong; one line for the user."""
