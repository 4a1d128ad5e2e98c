"""Group sizes beyond the tested limits (docs/scale.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "group sizes"

MAX_SLOTS: Final = 5_000
"""Recommended limit of ``capacity.max``: about half of what the group's memory and registry items allow."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Yield the groups that may grow too large; makes no AWS calls."""
    for group, capacity in stack.settings.capacities.items():
        if capacity.maximum > MAX_SLOTS:
            finding = (
                f"max is {capacity.maximum:,}: heartbeats share one DynamoDB partition, the state is one item"
            )
            yield CheckResult(
                group,
                "warning",
                finding,
                f"split the group: at most {MAX_SLOTS:,} slots per group (docs/scale.md)",
                stack.key(group, "capacity.max"),
            )
