"""The rules, by subject."""

from __future__ import annotations

from typing import Final

from policy.rules import access, data, instances, stack
from policy.rules.model import PolicyRule

RULES: Final[tuple[PolicyRule, ...]] = (*access.RULES, *data.RULES, *instances.RULES, *stack.RULES)
