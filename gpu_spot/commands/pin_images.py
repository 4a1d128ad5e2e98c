"""``gpu-spot pin-images``: write the newest machine images of a stack into its stack file.

A pinned image has a comment with the SSM parameter that it comes from, ``ami: ami-…  # of /aws/service/…``,
by which the command recognizes it. An image without such a comment is user-managed and is not changed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from gpu_spot.commands import files
from gpu_spot.commands.stack import add_stack_options, clients_for
from gpu_spot.declared.stackfile import StackConfig, StrictLoader, config_in, file_of, find_project
from gpu_spot.errors import aws_error

if TYPE_CHECKING:
    from infra.schema import Capacity, SharedHost, Work

_MARK: Final = re.compile(r"[ \t]*#[ \t]*of[ \t]+(/\S+)")
_IMAGE: Final = re.compile(r"ami-[0-9a-f]{8,17}")

Resolve: TypeAlias = Callable[[str], str]
"""Returns the AMI id that an SSM parameter holds."""


@dataclass(frozen=True)
class Pin:
    """A group's image, the keys of its capacity that hold it, and the previous image.

    ``before`` is None if the image was resolved at each preview. ``parameter`` is the source of ``image``.
    """

    group: str
    keys: tuple[str, ...]
    before: str | None
    image: str
    parameter: str

    @property
    def summary(self) -> str:
        """One line for the terminal."""
        if self.before is None:
            return f"{self.group}: resolved at each preview → {self.written}"
        subject = f"{self.group}: {', '.join(self.keys)}"
        if self.before == self.image:
            return f"{subject}: {self.image} is up to date"
        return f"{subject}: {self.before} → {self.image}"

    @property
    def written(self) -> str:
        """The value and its comment as written in the stack file."""
        return f"{self.image}  # of {self.parameter}"


@dataclass(frozen=True)
class Edit:
    """Replaces ``text[start:end]`` with ``new``, which writes ``pin``."""

    start: int
    end: int
    new: str
    pin: Pin


@dataclass(frozen=True)
class Pinned:
    """The images of a stack, and whether its stack file has changed."""

    stack: str
    region: str
    file: str
    changed: bool
    images: Sequence[Pin]


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("pin-images", help="write the newest machine images into a stack file")
    add_stack_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Pin the images of a stack and print each change."""
    from botocore.exceptions import BotoCoreError, ClientError
    from rich.console import Console

    path = file_of(find_project(), args.stack)
    config = StackConfig("", args.stack, path, config_in(path))
    region = config.region
    before = path.read_text("utf-8")
    client = clients_for(args, config)("ssm")

    def resolve(parameter: str) -> str:
        try:
            value = str(client.get_parameter(Name=parameter)["Parameter"]["Value"])
        except client.exceptions.ParameterNotFound:
            raise ValueError(f"no parameter {parameter} in {region}; create it, or name another") from None
        except (BotoCoreError, ClientError) as error:
            raise aws_error(f"parameter {parameter} in {region}", error) from None
        if not _IMAGE.fullmatch(value):
            raise ValueError(f"parameter {parameter} in {region} must hold an AMI ID, not {value!r}")
        return value

    after, images = pin_images(before, resolve)
    if after != before:
        files.write("--stack", path, after)
    result = Pinned(args.stack, region, path.name, after != before, images)
    if args.json:
        sys.stdout.write(f"{json.dumps(asdict(result), indent=2)}\n")
        return 0
    for line in [pin.summary for pin in images] or ["no images to pin: all images are user-managed"]:
        Console(markup=False, emoji=False).print(line, highlight=False, soft_wrap=True)
    return 0


def pin_images(text: str, resolve: Resolve) -> tuple[str, list[Pin]]:
    """Return a stack file's text with its images pinned, and the pins.

    The rest of the text, including comments and order, is unchanged. Raises ``ValueError`` for an invalid
    stack file, and for flow-style YAML, which leaves no room for comments.
    """
    from infra.settings import SettingsError, load_settings

    config = yaml.load(text, StrictLoader)["config"]  # noqa: S506 - a safe one
    try:
        settings = load_settings(config)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    document: Any = yaml.compose(text)
    nodes = _fields(_fields(document)["config"])
    edits: dict[int, Edit] = {}  # by position: an anchored entry occurs once in the file
    kinds: dict[str, Sequence[Work | SharedHost]] = {
        "services": settings.services,
        "training": settings.training,
        "sharedHosts": settings.shared_hosts,
    }
    for kind, entries in kinds.items():
        for index, entry in enumerate(entries):
            node = _fields(nodes[f"gpu-spot:{kind}"].value[index])["capacity"]
            for edit in _edits(text, entry.name, entry.capacity, node, resolve):
                edits[edit.start] = edit
    for edit in sorted(edits.values(), key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text, [edits[start].pin for start in sorted(edits)]


def _edits(
    text: str, group: str, capacity: Capacity, node: yaml.MappingNode, resolve: Resolve
) -> Iterator[Edit]:
    from infra.catalogue import accelerators

    if node.flow_style:
        raise ValueError(
            f"the capacity of {group!r} is a flow mapping ({{…}}); write it as a block mapping, "
            "one key per line"
        )
    fields = _fields(node)
    amis = _fields(fields["amis"]) if "amis" in fields else {}
    pinned_ami = {"ami": fields["ami"]} if "ami" in fields else {}
    for key, scalar in (pinned_ami | {f"amis.{family}": ami for family, ami in amis.items()}).items():
        if (edit := _existing_pin(text, group, key, scalar, resolve)) is not None:
            yield edit
    families = {accelerators.lookup(name).family.name for name in capacity.types}
    missing = sorted(families - amis.keys())
    if pinned_ami or not missing:
        return
    architecture = accelerators.lookup(capacity.types[0]).family.architecture
    parameter = accelerators.ami_parameter(architecture)
    keys = tuple(f"amis.{family}" for family in missing)
    pin = Pin(group, keys, None, resolve(parameter), parameter)
    start, indent = _line_of(text, node)
    if capacity.instance_requirements is None:
        pin = replace(pin, keys=("ami",))
        new = f"{indent}ami: {pin.written}\n"
    elif "amis" in fields:
        start, indent = _line_of(text, fields["amis"])
        new = "".join(f"{indent}{family}: {pin.written}\n" for family in missing)
    else:
        # Not `ami`: the requirements would then match families that AWS's image does not boot.
        new = f"{indent}amis:\n" + "".join(f"{indent}  {family}: {pin.written}\n" for family in missing)
    yield Edit(start, start, new, pin)


def _existing_pin(text: str, group: str, key: str, scalar: yaml.ScalarNode, resolve: Resolve) -> Edit | None:
    """Return the edit of an image that is already in the file, None if it is user-managed."""
    old, end = str(scalar.value), scalar.end_mark.index
    mark = _MARK.match(text, end)
    if old.startswith("/"):
        parameter = old
    elif mark is not None:
        parameter, end = mark[1], mark.end()
    else:
        return None
    pin = Pin(group, (key,), old, resolve(parameter), parameter)
    return Edit(scalar.start_mark.index, end, pin.written, pin)


def _fields(node: yaml.MappingNode) -> dict[str, Any]:
    """Return a mapping's values, with those that it merges (``<<``)."""
    yaml.SafeLoader("").flatten_mapping(node)
    return {key.value: value for key, value in node.value}


def _line_of(text: str, node: yaml.MappingNode) -> tuple[int, str]:
    """Return the start of the line of a mapping's first key, and its indentation."""
    if node.flow_style:
        raise ValueError("amis is a flow mapping ({…}); write it as a block mapping, one key per line")
    first: int = node.start_mark.index
    start = text.rfind("\n", 0, first) + 1
    return start, " " * (first - start)
