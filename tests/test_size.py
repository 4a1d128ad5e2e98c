"""The size of the house: a budget of lines for each folder, of words for the docs.

Lines of Python as they stand, tracked or new, blank ones included. A budget is lowered with the change that
makes room; raising one is a line of a review. The product is ``contracts`` to ``rehearsal``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.test_repository import FILES, ROOT

PRODUCT_LINES = {
    "contracts": 3_666,
    "infra": 19_482,
    "lambdas": 14_346,
    "userdata": 17_887,
    "gpu_spot": 13_083,
    "policy": 1_628,
    "market": 1_775,
    "rehearsal": 5_133,
}
MAX_PRODUCT_LINES = 77_000
LIBRARY_LINES = {
    "packages/pulumi-on-moto/src": 7_626,
    "packages/spot-training/src": 11_261,
    "packages/spot-work/src": 6_231,
}
OTHER_LINES = {
    "packages/tests": 22_989,
    "research": 9_909,
    "tests": 72_615,
    "originals": 15_277,
    "docs": 439,
    "examples": 1_416,
}
ORIGINALS = {"boot", "cluster", "engine", "real"}
"""Folders of ``tests`` that run another's program: docs/adr/0088."""
DOC_WORDS = 30_000
"""Words of README, CONTRIBUTING, ``docs/*.md`` but generated pages, and the libraries' READMEs."""
RECORDS = 40
RECORD_WORDS = 10_083
"""Decision records in ``docs/adr``, and their words."""
GENERATED = {"changes.md", "options.md", "stack-file.md", "verified.md"}
MAX_MODULES_OF_A_FOLDER = 15
MIN_LINES_OF_A_MODULE = 25
MAX_ROOT_ENTRIES = 24


def home(path: Path) -> str:
    """Return the budget that a module counts in."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "packages":
        return "originals" if parts[0] == "tests" and parts[1] in ORIGINALS else parts[0]
    return "/".join(parts[:3]) if "src" in parts[2:3] else "packages/tests"


def lines() -> Counter[str]:
    result: Counter[str] = Counter()
    for path in FILES:
        if path.suffix == ".py" and path.parent != ROOT:
            result[home(path)] += len(path.read_text("utf-8").splitlines())
    return result


def words(paths: list[Path]) -> int:
    return sum(len(path.read_text("utf-8").split()) for path in paths)


BUDGETS = PRODUCT_LINES | LIBRARY_LINES | OTHER_LINES


@pytest.mark.parametrize(("folder", "most"), BUDGETS.items())
def test_a_folder_stays_within_its_budget(folder: str, most: int) -> None:
    assert lines()[folder] <= most


def test_every_line_counts_in_a_budget() -> None:
    assert lines().keys() - BUDGETS.keys() == {"templates"}


def test_the_product_stays_within_its_budget() -> None:
    counted = lines()
    assert sum(counted[folder] for folder in PRODUCT_LINES) <= MAX_PRODUCT_LINES


def test_the_docs_stay_within_their_budget() -> None:
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED]
    readmes = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("packages/*/README.md")]
    assert words([*pages, *readmes]) <= DOC_WORDS
    records = list((ROOT / "docs" / "adr").glob("0*.md"))
    assert len(records) <= RECORDS
    assert words(records) <= RECORD_WORDS


def test_no_folder_has_become_an_attic() -> None:
    modules = Counter(
        path.parent
        for path in FILES
        if path.suffix == ".py" and path.name != "__init__.py" and is_shipped(path)
    )
    assert not {
        str(folder.relative_to(ROOT)): n for folder, n in modules.items() if n > MAX_MODULES_OF_A_FOLDER
    }


def test_no_module_of_the_product_is_a_fragment() -> None:
    sizes = {
        path: len(path.read_text("utf-8").splitlines())
        for path in FILES
        if path.suffix == ".py" and home(path) in PRODUCT_LINES and not path.name.startswith("__")
    }
    assert not {str(p.relative_to(ROOT)): n for p, n in sizes.items() if n < MIN_LINES_OF_A_MODULE}


def is_shipped(path: Path) -> bool:
    return home(path) in PRODUCT_LINES or home(path).endswith("/src")


def test_the_root_shows_what_the_product_is() -> None:
    entries = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert len([one for one in entries if not one.startswith(".")]) <= MAX_ROOT_ENTRIES
