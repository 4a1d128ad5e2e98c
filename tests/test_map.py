"""The map in docs/architecture.md is the tree: its table of rooms, and every path that a page names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.test_arrows import PACKAGES, folder

ROOT = Path(__file__).resolve().parents[1]
MAP = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATH = re.compile(rf"`((?:bench|tests|{'|'.join(PACKAGES)})/[^`<…]*)`")


def rooms() -> set[str]:
    """Every folder of the product that holds modules, as the map writes it."""
    found = {"bench/", *(f"{path.relative_to(ROOT)}/" for path in (ROOT / "bench").glob("[a-z]*"))}
    for package in PACKAGES:
        home = folder(package)
        for path in home.rglob("*.py"):
            inside = path.parent.relative_to(home).parts
            # How the package is divided below its rooms is its own map's matter.
            found.add("/".join((package, *inside[: 1 if package == "pulumi_on_moto" else None], "")))
    return found


def test_the_table_names_every_room_and_no_other() -> None:
    table = MAP.split("## Rooms")[1].split("\n## ")[0]
    named = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    assert sorted(named) == sorted(rooms())


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    named = {one.split(":")[0] for one in PATH.findall(text)}
    homes = (ROOT, *(folder(package).parent for package in PACKAGES))
    assert not [one for one in named if not any((home / one).exists() for home in homes)]


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("*/README.md"),
]
MODULE = re.compile(r"`(?:[\w./-]*/)?([\w-]+\.py)`")


def test_every_module_that_a_page_names_is_there() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    there = {Path(line).name for line in tracked.stdout.splitlines()}
    named = {(page.name, one) for page in PAGES for one in MODULE.findall(page.read_text("utf-8"))}
    assert named
    assert not sorted((page, one) for page, one in named if one not in there)
