"""The JSON keys that docs/commands.md documents, by command."""

from __future__ import annotations

import re
from typing import Final

from docs.site.stage import ROOT

_ROW: Final = re.compile(r"^\| `(?:gpu-spot )?([a-z -]+?)`[^|]*\| ([^|]*) \|", re.M)


def documented(command: str) -> set[str]:
    """Return the unconditional keys of a command's JSON document, from the table."""
    section = (ROOT / "docs" / "commands.md").read_text("utf-8").partition("\n## JSON\n")[2]
    rows = dict(_ROW.findall(section.partition("\n## ")[0]))
    return set(re.findall(r"`([a-z_]+)`", rows[command]))
