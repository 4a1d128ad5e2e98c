"""Groups that are too large for one: docs/scale.md says what stops, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "sizes of groups"

MOST: Final = 5_000
"""Of what ``capacity.max`` counts: about half of what the group's memory and its workers' rows can take."""


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Yield the groups that may grow too large; nothing is asked of AWS."""
    for group, capacity in stack.settings.capacities.items():
        if capacity.maximum > MOST:
            found = (
                f"max is {capacity.maximum:,}: its heartbeats share one partition of DynamoDB, its memory is "
                "one item"
            )
            yield Remark(group, "warning", found, f"divide it: at most {MOST:,} a group (docs/scale.md)")
