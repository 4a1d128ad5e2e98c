"""Staging of the repository's pages for the site generator: one folder with internal links.

On GitHub the README is the front page and pages link to files anywhere in the tree; a generator needs one
folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FRONT: Final = "README.md"
_OTHER_PAGES: Final = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "packages/*/README.md",
    "research/*.md",
    "packages/*/CHANGELOG.md",
    "packages/*/docs/*.md",
    "examples/*/README.md",
)
# A code span, which is unchanged, or a link: the one that begins first.
_LINK: Final = re.compile(r"`+[^`]*`+|(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_FENCE: Final = re.compile(r"^ *(```|~~~)")


class DeadLinkError(Exception):
    """Dead links in the tree, one per line."""


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Return every page of the tree with its path in the site; the README is the front page."""
    result = {root / _FRONT: "index.md"}
    for path in sorted((root / "docs").rglob("*.md")):
        result[path] = str(path.relative_to(root / "docs"))
    for pattern in _OTHER_PAGES:
        paths = (path for path in sorted(root.glob(pattern)) if not path.parent.name.startswith("."))
        result |= {path: str(path.relative_to(root)) for path in paths}
    return result


def stage(target: Path, root: Path = ROOT) -> None:
    """Write the pages and the files that they link to into ``target``, which is emptied first.

    Raises:
        DeadLinkError: A linked file does not exist. The generator checks anchors.
    """
    shutil.rmtree(target, ignore_errors=True)
    staged, dead, files = pages(root), list[str](), dict[Path, str]()

    def lead(page: Path, whole: re.Match[str]) -> str:
        mark, words, link = whole.groups()
        if link is None or re.match(r"[a-z]+:|#", link):
            return whole[0]
        path, _, anchor = link.partition("#")
        aim = (page.parent / path).resolve()
        if aim.is_dir():
            if not (aim / "README.md").is_file():
                return str(words)  # a folder without a README: only the text remains
            aim = aim / "README.md"
        if not aim.is_file():
            dead.append(f"{page.relative_to(root)}: {link}")
            return whole[0]
        target = staged.get(aim) or files.setdefault(aim, _file_place(aim, root))
        relative = os.path.relpath(target, Path(staged[page]).parent)
        return f"{mark}[{words}]({relative}{'#' + anchor if anchor else ''})"

    for page, target_path in staged.items():
        text = "".join(_rewritten(page.read_text("utf-8"), lambda match, page=page: lead(page, match)))
        out = target / target_path
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, "utf-8")
    if dead:
        raise DeadLinkError("\n".join(dead))
    for path, target_path in files.items():
        (target / target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / target_path)


def _file_place(path: Path, root: Path) -> str:
    inside = path.relative_to(root)
    return str(Path(*inside.parts[1:]) if inside.parts[0] == "docs" else inside)


def _rewritten(text: str, lead: Callable[[re.Match[str]], str]) -> Iterator[str]:
    """Yield the lines of a page with rewritten links; code is unchanged."""
    fenced = False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            fenced = not fenced
        yield line if fenced else _LINK.sub(lead, line)
