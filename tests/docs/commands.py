"""The commands in the documentation, and those that no test runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.site.stage import ROOT, pages

_BLOCK: Final = re.compile(r"^ *```(?:console|bash|sh)\n(.*?)^ *```$", re.M | re.S)
_SPAN: Final = re.compile(r"(?<!`)`(?:\.venv/bin/)?((?:gpu-spot|make) [^`]+)`(?!`)")
_COMMENT: Final = re.compile(r"(?:^|\s+)# .*$")
_VERIFIED: Final = ROOT / "docs" / "verified.md"


@dataclass(frozen=True)
class Command:
    """A line of a code block, without its comment, or a command in prose."""

    page: str
    line: str


def code_block_commands() -> Iterator[Command]:
    """Yield the lines of the code blocks of all pages, except changelogs."""
    for page in _pages():
        for block in _BLOCK.findall(page.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if command := _COMMENT.sub("", line).strip():
                    yield Command(str(page.relative_to(ROOT)), command)


def prose_commands() -> Iterator[Command]:
    """Yield commands in prose that start with ``gpu-spot`` or ``make``."""
    for page in _pages():
        for line in _SPAN.findall(page.read_text("utf-8")):
            yield Command(str(page.relative_to(ROOT)), line)


def unverified_commands() -> list[str]:
    """Return the prefixes of commands that docs/verified.md lists as run by no test."""
    section = _VERIFIED.read_text("utf-8").split("## Commands that no test runs\n")[1].split("\n## ")[0]
    return [
        beginning
        for row in re.findall(r"^\| (`.*`) \|", section, re.M)
        for beginning in re.findall(r"`([^`]+)`", row)
    ]


def _pages() -> list[Path]:
    return [page for page in pages() if page.name != "CHANGELOG.md" and "adr" not in page.parts]
