"""The version of the node agent, which each worker's row in the registry names."""

from __future__ import annotations

import re
from typing import Final

VERSION: Final = "0.1.0"
"""The version of this package, from which the agent's archive is built; ``pyproject.toml`` has the same."""
MAX_BEHIND: Final = 1
"""Minor versions by which a running agent may be behind: its role is of the stack's version."""

_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.[0-9]{1,4}")


def is_version(text: str) -> bool:
    """Return whether a row names a version; rows of agents before 0.1.0 name none."""
    return _VERSION.fullmatch(text) is not None


def is_too_old(agent: str, stack: str) -> bool:
    """Return whether a stack of version ``stack`` must not meet this agent; one without a version may."""
    if not (old := _VERSION.fullmatch(agent)) or not (new := _VERSION.fullmatch(stack)):
        return False
    if old[1] != new[1]:
        return int(old[1]) < int(new[1])
    return int(old[2]) < int(new[2]) - MAX_BEHIND
