"""Read ``Pulumi.yaml`` and ``Pulumi.<stack>.yaml`` as the Pulumi engine would, and apply overrides."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_spot.errors import UserError

_SEGMENT: Final = re.compile(r"(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]")
_TYPES: Final = {"array": list, "object": dict, "string": str, "integer": int, "boolean": bool}
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN: Final = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "merge": "<<",
    "timestamp": r"\d{4}-\d\d?-\d\d?([Tt ]\d\d?:\d\d?:\d\d?(\.\d+)?(Z|[-+]\d\d:\d\d)?)?",
    "int": "[-+]?(0|0b[01_]+|0o?[0-7][0-7_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*)",
    "float": r"[-+]?(\.\d+|\d[\d_]*(\.[\d_]*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
"""Plain values as ``resolve.go`` of gopkg.in/yaml.v3 reads them: ``on``, ``no`` and 12:30 are text."""


def find_project() -> Path:
    """Return the nearest directory that holds ``Pulumi.yaml``: the current one or an ancestor."""
    current = Path.cwd()
    for directory in (current, *current.parents):
        if (directory / "Pulumi.yaml").is_file():
            return directory
    raise UserError(f"no Pulumi.yaml in {current} or a parent directory")


@dataclass(frozen=True, slots=True)
class StackConfig:
    """The configuration that the engine passes to a program, and the program's path.

    Attributes:
        project: the project's name.
        stack: the stack's name.
        program: the file or folder to run.
        values: configuration by full key (``namespace:key``), as parsed from YAML.
    """

    project: str
    stack: str
    program: Path
    values: Mapping[str, Any]

    @property
    def region(self) -> str:
        """The stack's ``aws:region``."""
        region = self.values.get("aws:region")
        if not isinstance(region, str) or not region:
            raise UserError(f"Pulumi.{self.stack}.yaml: set aws:region, for example us-west-2")
        return region

    @property
    def default_tags(self) -> dict[str, str]:
        """The default tags of the stack's aws provider (``aws:defaultTags``)."""
        tags = self.values.get("aws:defaultTags") or {}
        return dict(tags.get("tags") or {}) if isinstance(tags, dict) else {}

    def encoded(self) -> dict[str, str]:
        """Return the values in the engine's encoding: text unchanged, everything else as JSON."""
        return {
            key: value if isinstance(value, str) else json.dumps(value) for key, value in self.values.items()
        }


def load(
    project_dir: Path | str,
    stack: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
) -> StackConfig:
    """Read a stack's configuration.

    Args:
        project_dir: the folder that holds ``Pulumi.yaml``.
        stack: the stack's name.
        overrides: new values by path, for example ``{"services[0].capacity.target": 4}``; a key without a
            namespace belongs to the project. All steps of a path except the last must exist.
        file: the file to read instead of the one in the project's ``stackConfigDir``.

    Raises:
        UserError: a file is missing or malformed, a value is a secret, or a path does not exist.
    """
    project_dir = Path(project_dir)
    project_file = project_dir / "Pulumi.yaml"
    project = _mapping(project_file)
    name = project.get("name")
    if not isinstance(name, str):
        raise UserError(f"{project_file.name}: name must be text, not {name!r}")
    stack_file = file if file is not None else file_of(project_dir, stack)
    values = _declared_defaults(project, name)
    for key, value in config_in(stack_file).items():
        _refuse_secrets(value, f"{stack_file.name}: {key}")
        values[_full_key(str(key), name)] = value
    values = json.loads(json.dumps(values))  # keys are text, and what an alias repeats is a copy
    for path, value in (overrides or {}).items():
        _override(values, path, value, name)
    _check_types(project, name, values, stack_file.name)
    program = (project_dir / str(project.get("main") or ".")).resolve()
    return StackConfig(name, stack, program, values)


def file_of(project_dir: Path, stack: str) -> Path:
    """Return a stack's file; raise ``UserError`` with the existing stacks if there is none."""
    file = folder_of_stacks(project_dir) / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        existing = ", ".join(stacks_in(project_dir)) or "none"
        raise UserError(f"stack {stack!r}: no file {file.name}; stacks here: {existing}")
    return file


def stacks_in(project_dir: Path) -> list[str]:
    """Return the names of the stacks that have a file, sorted."""
    return sorted(path.name.split(".")[1] for path in folder_of_stacks(project_dir).glob("Pulumi.*.yaml"))


def folder_of_stacks(project_dir: Path) -> Path:
    """Return the folder of the stack files: the project's, or what its ``stackConfigDir`` names."""
    return project_dir / str(_mapping(project_dir / "Pulumi.yaml").get("stackConfigDir") or ".")


def config_in(file: Path) -> dict[str, Any]:
    """Return the configuration of a stack file, unchanged; raise ``UserError``."""
    config = _mapping(file).get("config") or {}
    if not isinstance(config, dict):
        raise UserError(f"{file.name}: config must be a mapping, not {config!r}")
    return config


class StrictLoader(yaml.SafeLoader):
    """Reads plain values as the engine does, and refuses a key that occurs twice, as it does."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping as it is written: merge keys (``<<``) have added nothing yet."""
        mapping: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if (first := lines.get(key.value)) is not None:
                    raise yaml.YAMLError(
                        f"key {key.value!r} occurs in lines {first} and {line}; remove one of them"
                    )
                lines[key.value] = line
        return mapping

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Return a number; one without a fraction is a whole number in the engine's JSON."""
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() else value

    def refuse_time(self, node: yaml.ScalarNode) -> None:
        """Refuse a time: the program would get 2026-12-01 as 2026-12-01 00:00:00 +0000 UTC."""
        line = node.start_mark.line + 1
        raise yaml.YAMLError(f"{node.value} in line {line} is a time, which the engine rewrites; quote it")


StrictLoader.yaml_implicit_resolvers = {}
for _name, _form in _PLAIN.items():
    StrictLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"({_form})\Z"), None)
StrictLoader.add_constructor(f"{_TAG}float", StrictLoader.construct_number)
StrictLoader.add_constructor(f"{_TAG}timestamp", StrictLoader.refuse_time)


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), StrictLoader)  # noqa: S506 - a safe one
    except FileNotFoundError:
        raise UserError(f"no {path.name} in {path.parent}") from None
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path.name} must hold a mapping, not {type(content).__name__}")
    return content


def _full_key(key: str, project: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _declarations(project: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    declared = project.get("config") or {}
    return {
        _full_key(str(key), name): value if isinstance(value, dict) else {"value": value}
        for key, value in declared.items()
    }


def _declared_defaults(project: Mapping[str, Any], name: str) -> dict[str, Any]:
    declarations = _declarations(project, name).items()
    values = {key: declared.get("value", declared.get("default")) for key, declared in declarations}
    return {key: value for key, value in values.items() if value is not None}


def _check_types(project: Mapping[str, Any], name: str, values: Mapping[str, Any], file: str) -> None:
    for key, declaration in _declarations(project, name).items():
        expected = _TYPES.get(str(declaration.get("type")))
        if expected is None:
            continue
        if key not in values:
            raise UserError(f"{file}: {key} is missing; set a value of type {declaration['type']}")
        value = values[key]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise UserError(f"{file}: {key} must be a value of type {declaration['type']}, not {value!r}")


def _refuse_secrets(value: Any, where: str) -> None:
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            raise UserError(
                f"{where} is a secret, which only Pulumi can decrypt; override it with a plain value"
            )
        for key, item in value.items():
            _refuse_secrets(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_secrets(item, f"{where}[{index}]")


def _override(values: dict[str, Any], path: str, value: Any, project: str) -> None:
    namespace, colon, rest = path.partition(":")
    steps = [
        int(match["index"]) if match["index"] else match["key"]
        for match in _SEGMENT.finditer(rest if colon else path)
    ]
    if not steps or not isinstance(steps[0], str):
        raise UserError(f"override {path!r} must be a path such as services[0].capacity.target")
    steps[0] = f"{namespace}:{steps[0]}" if colon else _full_key(steps[0], project)
    level: Any = values
    for step in steps[:-1]:
        try:
            level = level[step]
        except (KeyError, IndexError, TypeError):
            raise UserError(f"override {path!r}: the stack has no {step!r} there") from None
    last = steps[-1]
    if isinstance(last, int) and not (isinstance(level, list) and last < len(level)):
        raise UserError(f"override {path!r}: the stack has no item {last} there")
    if isinstance(last, str) and not isinstance(level, dict):
        raise UserError(f"override {path!r}: {last!r} cannot be set in {level!r}")
    level[last] = value
