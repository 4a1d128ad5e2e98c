"""The cost allocation tag of the budget.

Source: ``ListCostAllocationTags``: only the organization's management account may call it, and a tag appears
a day after its first use. A request to Cost Explorer costs $0.01, so it is made only if there is a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "budget"

_SUBJECT: Final = f"cost allocation tag {names.TAG_STACK}"


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check that the tag is active; without a budget no request is made."""
    if stack.settings.monitoring.monthly_budget_usd is None:
        return
    tags = account.clients("ce").list_cost_allocation_tags(TagKeys=[names.TAG_STACK])["CostAllocationTags"]
    if any(tag["Status"] == "Active" for tag in tags):
        yield CheckResult(_SUBJECT, "ok", "active")
    else:
        finding = "not active" if tags else "not yet visible in Billing"
        advice = "activate it in Billing one day after the first `up`; until then the budget counts no costs"
        yield CheckResult(_SUBJECT, "warning", finding, advice, "monitoring.monthlyBudgetUsd")
