"""The JSON Schema of a whole ``Pulumi.<env>.yaml``."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.reference.keys import REGION, schema

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def stack_file() -> dict[str, Any]:
    """Return it: ``config`` with our keys, and no other of ours, and ``aws:region``; all else is free.

    The checks between keys are the program's alone.
    """
    settings = schema()
    own = {f"gpu-spot:{name}": rule for name, rule in settings["properties"].items() if name != REGION}
    return {
        "$schema": _DRAFT,
        "title": "A stack file of gpu-spot",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {"aws:region": settings["properties"][REGION], **own},
                "propertyNames": {"anyOf": [{"enum": [*own]}, {"not": {"pattern": "^gpu-spot:"}}]},
                "required": ["aws:region", *(f"gpu-spot:{n}" for n in settings["required"] if n != REGION)],
            }
        },
        "required": ["config"],
        "$defs": settings["$defs"],
    }
