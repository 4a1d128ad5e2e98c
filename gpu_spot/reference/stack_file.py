"""The JSON Schema of a stack file ``Pulumi.<env>.yaml``."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.reference.keys import REGION, schema

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def stack_file() -> dict[str, Any]:
    """Return the schema: ``config`` with the keys of ``gpu-spot:`` and ``aws:region``.

    Unknown ``gpu-spot:`` keys are rejected; other namespaces are free. Constraints between keys are checked
    by the program only.
    """
    settings = schema()
    properties = {f"gpu-spot:{name}": rule for name, rule in settings["properties"].items() if name != REGION}
    return {
        "$schema": _DRAFT,
        "title": "A stack file of gpu-spot",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {"aws:region": settings["properties"][REGION], **properties},
                "propertyNames": {"anyOf": [{"enum": [*properties]}, {"not": {"pattern": "^gpu-spot:"}}]},
                "required": ["aws:region", *(f"gpu-spot:{n}" for n in settings["required"] if n != REGION)],
            }
        },
        "required": ["config"],
        "$defs": settings["$defs"],
    }
