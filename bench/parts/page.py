"""Write one benchmark's part of ``docs/performance.md``; other parts do not change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

_INTRODUCTION = """# Performance

Every figure is written by a benchmark, between two markers.
"""


def replace_part(page: Path, part: str, text: str) -> None:
    """Replace the text between the markers of ``part``; append a new part."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    old = page.read_text(encoding="utf-8") if page.exists() else _INTRODUCTION
    block = f"{begin}\n\n{text.strip()}\n\n{end}"
    if begin in old:
        before, _, rest = old.partition(begin)
        new = f"{before}{block}{rest.partition(end)[2]}"
    else:
        new = f"{old.rstrip()}\n\n{block}\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(new, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column text and the others numbers."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
