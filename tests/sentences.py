"""What makes an error message a sentence: its path first, a verb, a remedy, a full stop."""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = re.compile(r"(gpu-spot|aws:region|[a-z][\w.:]*[\[.:]|[A-Z'])")
_VERB: Final = re.compile(
    r"\b(must|is|are|has|have|cannot|needs?|belongs|differs?|works?|looks|does|do|requires|names|lists|begins|include|prepare)\b"
)
_REMEDY: Final = re.compile(r"\b(must|needs?|works)\b|; |\? The |\. (More|Or) |is required|did you mean")


def faults(line: str) -> list[str]:
    """Return what a line of an error lacks to be a sentence with path and remedy."""
    return [
        fault
        for fault, is_so in {
            "has 'allowed:'": "allowed:" in line,
            "does not begin with a path or a capital": not _BEGIN.match(line),
            "has no verb": not _VERB.search(line),
            "has no remedy": not _REMEDY.search(line),
            "does not end with a full stop": not line.endswith(".") or line.endswith(".."),
            "has an empty choice": re.search(r"\b(use|must be) ?[,;.]$", line) is not None,
        }.items()
        if is_so
    ]
