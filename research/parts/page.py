"""Write one benchmark's part of a page of ``research``; other parts do not change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

PAGES: Final = {
    "capacity": ("doubt", "capacity", "warm-pool", "rebalance", "forecast"),
    "training": ("deadline", "research", "research-efs", "checkpoint", "nodes", "node-losses"),
    "services": ("service", "http", "http-scaling", "scaling", "request-log"),
    "rollouts": ("rollout",),
    "hosts": ("slices",),
}
"""The parts of each page, in their order."""


def replace_part(root: Path, part: str, text: str) -> None:
    """Replace the text between the markers of ``part`` in its page of a checkout; append a new part."""
    [name] = [name for name, parts in PAGES.items() if part in parts]
    page = root / "research" / f"{name}.md"
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    old = page.read_text(encoding="utf-8") if page.exists() else f"# {name.capitalize()}\n"
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
