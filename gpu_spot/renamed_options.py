"""Deprecated option names, accepted for one minor version with a warning on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "demo": {"--notice": "--notice-share"},
    "replay": {
        "--early": "--rebalance-share",
        "--hostile": "--inject-faults",
        "--look-seconds": "--poll-seconds",
        "--notice": "--notice-share",
    },
    "replay-deadline": {"--delay": "--restart-minutes"},
}
"""By command: deprecated name → current name."""


def replace_renamed_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``gpu-spot`` with current option names; warn about each deprecated one.

    The parsers do not know the deprecated names, so help and completion do not list them.
    """
    renamed = RENAMED.get(arguments[0], {}) if arguments else {}
    current = []
    for argument in arguments:
        option, separator, value = argument.partition("=")
        if option in renamed:
            sys.stderr.write(f"gpu-spot: {option} is deprecated, use {renamed[option]}\n")
            argument = f"{renamed[option]}{separator}{value}"
        current.append(argument)
    return current
