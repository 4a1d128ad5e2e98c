"""The controller's actions as records of its log."""

from __future__ import annotations

from typing import Any, Final

from lambdas.core.model import Action

# The dashboard, `gpu-spot status` and the rehearsal read these names from the log.
_LOGGED_ACTIONS: Final = {"TerminateInstances": "Release"}
_LOGGED_FIELDS: Final = {"group_role": "side", "skip_warm_pool": "for_good"}


def describe(action: Action) -> dict[str, Any]:
    """Return an action as a flat record for the log."""
    fields = {_LOGGED_FIELDS.get(name, name): getattr(action, name) for name in action.__slots__}
    name = type(action).__name__
    return {"action": _LOGGED_ACTIONS.get(name, name), **fields}
