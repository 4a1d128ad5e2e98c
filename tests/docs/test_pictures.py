"""Pictures are drawn from text, up to date, and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site import pictures

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("source", pictures.sources(), ids=lambda path: path.stem)
def test_a_picture_is_up_to_date_and_shown(source: Path) -> None:
    drawn = pictures.picture(source)
    assert drawn.read_text("utf-8").startswith(pictures.mark(source)), "run: make pictures"
    assert any(f"img/{drawn.name}" in page.read_text("utf-8") for page in PAGES)


def test_a_changed_text_is_noticed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.mmd", tmp_path / "b" / "a.mmd"
    second.parent.mkdir()
    first.write_text("flowchart LR\n a --> b\n", "utf-8")
    second.write_text("flowchart LR\n a --> c\n", "utf-8")
    assert pictures.mark(first) != pictures.mark(second)
