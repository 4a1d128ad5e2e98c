"""Write one benchmark's part of a page of ``research``; other parts do not change.

README and documentation quote cells of these pages between markers, ``<!--=PART:ROW:COLUMN-->1.02<!--/-->``
with ``_`` for a space; a written part rewrites its quotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PAGES: Final = {
    "capacity": ("doubt", "capacity", "warm-pool", "rebalance", "forecast"),
    "training": ("deadline", "research", "research-efs", "checkpoint", "nodes", "node-losses"),
    "services": ("service", "http", "http-scaling", "scaling", "request-log"),
    "rollouts": ("rollout",),
    "hosts": ("slices",),
    "review": ("review",),
}
"""The parts of each page, in their order."""
QUOTING: Final = ("README.md", "research/performance.md")
_QUOTED: Final = re.compile(r"<!--=([^:>]+):([^:>]+):([^:>]+)-->[^<]*<!--/-->")


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
    for quoting in map(root.joinpath, QUOTING):
        if quoting.exists():
            quoting.write_text(quoted(root, quoting.read_text("utf-8")), "utf-8")


def quoted(root: Path, text: str) -> str:
    """Return a text with its quotations as the pages have them; raise ``LookupError`` for one without."""

    def current(match: re.Match[str]) -> str:
        return f"<!--={match[1]}:{match[2]}:{match[3]}-->{cell(root, *match.groups())}<!--/-->"

    return _QUOTED.sub(current, text)


def cell(root: Path, part: str, row: str, column: str) -> str:
    """Return a cell of the first table of a part that has the row and the column."""
    [name] = [name for name, parts in PAGES.items() if part in parts] or [part]
    page = (root / "research" / f"{name}.md").read_text("utf-8")
    text = page.partition(f"<!-- {part}: begin -->")[2].partition(f"<!-- {part}: end -->")[0]
    head: list[str] = []
    for cells in _rows(text):
        if not cells:
            head = []
        elif not head:
            head = cells
        elif cells[0] == row and column in head:
            return cells[head.index(column)]
    raise LookupError(f"{part} of research/{name}.md has no row {row!r} with a column {column!r}")


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a table, without marks and with ``_`` for a space; else nothing."""
    for line in text.splitlines():
        parts = line.strip().strip("|").split("|") if line.startswith("|") else []
        yield [re.sub(r"[*`]", "", part.strip()).replace(" ", "_") for part in parts]


def pictured(root: Path, pictures: Mapping[str, str]) -> None:
    """Write SVG pictures of a page, by file name."""
    for name, svg in pictures.items():
        picture = root / "docs" / "img" / name
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(svg, encoding="utf-8")


def table_of(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of figures: each column has a head and the format of its cells, as in ``{cost:.2f}``.

    Below a head that ends in % percentages have no sign.
    """
    cells = (
        [form.format_map(row).strip("%" if head.endswith("%") else "") for head, form in columns.items()]
        for row in rows
    )
    return table([*columns], cells)


def ratio_text(ratio: float | None) -> str:
    """Return a cell with a ratio, which may be missing."""
    return "none" if ratio is None else f"{ratio:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column text and the others numbers."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
