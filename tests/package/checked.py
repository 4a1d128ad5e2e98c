"""Checks of a Pulumi YAML program against the package's schema: tokens, inputs, types, keys, outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from infra.package.provider import Package

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "components-yaml" / "Pulumi.yaml"
_REFERENCE = re.compile(r"\$\{(\w[\w-]*)\.(\w+)[^}]*\}")


@cache
def package() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(Package().schema or "")
    return made


def problems(program: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of a program, one line each."""
    kinds = {}
    for name, resource in program["resources"].items():
        token = resource["type"].replace("gpu-spot:", "gpu-spot:index:", 1)
        if token not in package()["resources"]:
            yield f"{name}: unknown type {resource['type']}"
            continue
        kinds[name] = package()["resources"][token]
        yield from (f"{name}: {one}" for one in of_inputs(token, resource.get("properties", {})))
    for name, key in _REFERENCE.findall(json.dumps(program)):
        if key not in kinds.get(name, {"properties": {}})["properties"]:
            yield f"${{{name}.{key}}} is not an output"


def of_inputs(token: str, given: Mapping[str, Any]) -> list[str]:
    resource = package()["resources"][token]
    # Pulumi's schema uses the keywords of JSON Schema; in addition, unknown keys are errors.
    rules = {
        "types": {name: {**kind, "additionalProperties": False} for name, kind in package()["types"].items()},
        "type": "object",
        "properties": resource["inputProperties"],
        "required": resource.get("requiredInputs", []),
        "additionalProperties": False,
    }
    anything = json.loads(json.dumps(rules).replace('"$ref": "pulumi.json#/Any"', '"title": "any"'))
    return [one.message for one in jsonschema.Draft202012Validator(anything).iter_errors(given)]
