"""``docs/stack-file.md``: every key of a stack file, what it may be, and what it is if it is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from gpu_spot.reference import keys
from gpu_spot.reference.allowed import allowed
from gpu_spot.reference.keys import Key, Section

_HEAD: Final = (
    "# The stack file\n\n"
    "One `Pulumi.<env>.yaml` for each environment: every key that may stand in its `config`, written by "
    "`gpu-spot schema --page` from the schema in `infra/schema/`. A wrong key or value ends the preview with "
    "the key's full path, what was given, and what is allowed. What a change does to running instances: "
    "[in place](operations.md#what-changes-in-place) or [replaced](operations.md#what-is-replaced).\n\n"
    "`gpu-spot schema > stack-file.schema.json` writes the same for an editor: with "
    "`# yaml-language-server: $schema=stack-file.schema.json` as a file's first line it completes and checks "
    "keys while you type. The checks between keys are the program's alone.\n"
)


def page() -> str:
    """Return the page."""
    found = keys.sections(keys.schema())
    titles = {section.ref: _title(section) for section in found}

    def link(ref: str) -> str:
        return f"[{titles[ref].rpartition('.')[2]}](#{_anchor(titles[ref])})"

    return "\n".join([_HEAD, *(_shown(section, titles[section.ref], link) for section in found)])


def _title(section: Section) -> str:
    return section.places[0] if section.places else "Below config"


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _shown(section: Section, title: str, link: Callable[[str], str]) -> str:
    lines = [f"## {title}", ""]
    if section.about:
        lines += [_prose(section.about), ""]
    if len(section.places) > 1:
        lines += ["Also: " + ", ".join(f"`{place}`" for place in section.places[1:]) + ".", ""]
    lines += ["| key | what it is | allowed | left out |", "|---|---|---|---|"]
    prefix = "" if section.places else "gpu-spot:"
    for key in section.keys:
        cells = (f"`{prefix}{key.name}`", _prose(key.about), allowed(key.rule, link), _default(key))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _default(key: Key) -> str:
    if key.is_needed:
        return "**needed**"
    if key.follows:
        return "its defaults" if "$ref" in key.rule else "as said"
    return "none" if key.default in (None, [], {}) else f"`{_plain(key.default)}`"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
