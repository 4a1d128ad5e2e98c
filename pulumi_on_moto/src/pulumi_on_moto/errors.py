"""The one error of the local cloud."""

from __future__ import annotations


class LocalCloudError(Exception):
    """Something that the local cloud cannot carry out; its text is one line for the user."""
