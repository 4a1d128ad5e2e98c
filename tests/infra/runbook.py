"""docs/runbook.md: which alarm has which heading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text("utf-8")
HEADINGS: Final = {
    name for line in PAGE.splitlines() if line.startswith("### ") for name in re.findall(r"`([^`]+)`", line)
}
_PLACE: Final = re.compile(r"<\w+>")


def heading(alarm: str) -> str | None:
    """Return the heading of an alarm by its name without the stack's; the longest fixed part wins."""
    fits = [one for one in HEADINGS if re.fullmatch(_PLACE.sub("[a-z0-9-]+", one.replace(".", r"\.")), alarm)]
    return max(fits, key=lambda one: len(_PLACE.sub("", one)), default=None)
