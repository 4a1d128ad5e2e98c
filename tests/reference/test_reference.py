"""docs/stack-file.md and `gpu-spot schema` match the schema."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from gpu_spot.reference import keys
from gpu_spot.reference.keys import stack_file
from gpu_spot.reference.page import allowed, page

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_schema() -> None:
    written = (ROOT / "docs" / "stack-file.md").read_text("utf-8")
    assert written == page(), "gpu-spot schema --page > docs/stack-file.md"


def test_headings_are_apart() -> None:
    headings = [line for line in page().splitlines() if line.startswith("## ")]
    assert len(headings) == len({*headings})


def test_every_key_has_a_description() -> None:
    sections = keys.sections(keys.schema())
    assert sum(len(section.keys) for section in sections) > 150
    assert not [(s.paths[:1], key.name) for s in sections for key in s.keys if len(key.about) < 4]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"type": "boolean"}, "`true`, `false`"),
        ({"type": "integer", "minimum": 0, "maximum": 10_000_000}, "0 to 10,000,000"),
        ({"type": "number", "minimum": 0.01, "maximum": 10.0}, "0.01 to 10"),
        ({"type": "integer", "minimum": 1}, "a whole number, at least 1"),
        ({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}, "a number"),
        ({"enum": ["a", 2]}, "`a`, `2`"),
        ({"type": "array", "minItems": 1, "items": {"type": "string"}}, "a list of at least one of: text"),
        ({"type": "array", "maxItems": 4, "items": {"const": "x"}}, "a list of 0 to 4 of: `x`"),
        ({"type": "object", "additionalProperties": {"$ref": "#/$defs/A"}}, "a mapping to: A"),
        ({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}, "A or B"),
        ({"type": "string", "pattern": "^ami-$"}, "`^ami-$`"),
        ({"type": "string", "pattern": "x" * 61}, "text of a fixed form"),
        ({"type": "string", "maxLength": 9}, "text of 0 to 9 characters"),
    ],
)
def test_a_rule_in_words(rule: dict[str, object], words: str) -> None:
    assert allowed(rule, lambda ref: ref.rpartition("/")[2]) == words


@pytest.mark.parametrize("path", sorted((ROOT / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_the_schema_accepts_the_shipped_stack_files(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text("utf-8")), stack_file())


@pytest.mark.parametrize(
    ("key", "value"),
    [("gpu-spot:service", []), ("gpu-spot:protect", "yes"), ("gpu-spot:services", [{"name": "a", "x": 1}])],
)
def test_the_schema_rejects_what_the_program_rejects(key: str, value: object) -> None:
    file = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text("utf-8"))
    file["config"][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(file, stack_file())


def test_an_editors_schema_knows_our_keys_alone() -> None:
    config = stack_file()["properties"]["config"]
    assert config["required"] == ["aws:region", "gpu-spot:network"]
    assert {"enum": [key for key in config["properties"] if key != "aws:region"]} in config["propertyNames"][
        "anyOf"
    ]
