"""The rules, by subject."""

from __future__ import annotations

from typing import Final

from policy.rules import access, accounts, data, instances, limits, network, stack
from policy.rules.model import PolicyRule

RULES: Final[tuple[PolicyRule, ...]] = (
    *network.RULES,
    *access.RULES,
    *accounts.RULES,
    *data.RULES,
    *instances.RULES,
    *limits.RULES,
    *stack.RULES,
)
