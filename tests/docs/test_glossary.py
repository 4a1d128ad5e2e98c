"""Every term of the glossary is used: on another page, in the README or in a contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"^\| \*\*([^*]+)\*\* \|", GLOSSARY.read_text("utf-8"), re.M)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in (ROOT / "docs").glob("*.md") if p != GLOSSARY),
]
TEXT = "\n".join(page.read_text("utf-8").casefold() for page in PAGES)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used(term: str) -> None:
    assert re.search(rf"\b{re.escape(term.casefold())}(s|es)?\b", TEXT), f"no page uses {term!r}"


def test_no_term_stands_twice_and_each_has_one_sentence() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \| (.+) \|$", GLOSSARY.read_text("utf-8"), re.M)
    assert len(rows) == len(TERMS) == len(set(TERMS)) >= 35
    assert not [term for term, text in rows if re.search(r"\. [A-Z]", text) or not text.endswith((".", "`."))]
