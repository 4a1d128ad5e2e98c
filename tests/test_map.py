"""docs/architecture.md names every package, and every path that a page names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_arrows import PACKAGES, package_dir
from tests.waiting import run_process

ROOT = Path(__file__).resolve().parents[1]
MAP = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATH = re.compile(rf"`((?:research|tests|{'|'.join(PACKAGES)})/[^`<…]*)`")


def folders() -> list[Path]:
    """Every folder of the product that holds modules."""
    return sorted({path.parent for package in PACKAGES for path in package_dir(package).rglob("*.py")})


def test_the_map_names_every_package_and_no_other() -> None:
    table = MAP.split("## The parts")[1].split("\n## ")[0]
    named = {
        name.replace("-", "_")
        for row in re.findall(r"^\| ([^|]+) \|", table, re.M)
        for name in re.findall(r"`(?:packages/)?([\w-]+)/`", row)
    }
    assert named == {*PACKAGES, "tests"}


def test_the_first_line_of_a_package_says_what_its_modules_are_for() -> None:
    sources = {package: (package / "__init__.py").read_text("utf-8") for package in folders()}
    assert not [package for package, text in sources.items() if not ast.get_docstring(ast.parse(text))]


def test_what_a_page_names_is_there() -> None:
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
    named = {
        (page.name, one.split(":")[0]) for page in pages for one in PATH.findall(page.read_text("utf-8"))
    }
    homes = (ROOT, *(package_dir(package).parent for package in PACKAGES))
    assert not sorted((page, one) for page, one in named if not any((home / one).exists() for home in homes))


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("packages/*/README.md"),
]
MODULE = re.compile(r"`(?:[\w./-]*/)?([\w-]+\.py)`")


def test_every_module_that_a_page_names_is_there() -> None:
    tracked = run_process(["git", "ls-files", "*.py"], cwd=ROOT, check=True)
    there = {Path(line).name for line in tracked.stdout.splitlines()}
    named = {(page.name, one) for page in PAGES for one in MODULE.findall(page.read_text("utf-8"))}
    assert named
    assert not sorted((page, one) for page, one in named if one not in there)
