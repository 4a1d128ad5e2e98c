"""The tag by which the budget counts.

Source: ``ListCostAllocationTags``: only the organisation's management account may ask, and tags are found
there a day after they are first used. AWS's Cost Explorer takes $0.01 for each request, so it is asked only
for a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "budget"

_SUBJECT: Final = f"cost allocation tag {names.TAG_STACK}"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """See that the tag is active; without a budget nothing is asked."""
    if stack.settings.monitoring.monthly_budget_usd is None:
        return
    tags = account.clients("ce").list_cost_allocation_tags(TagKeys=[names.TAG_STACK])["CostAllocationTags"]
    if any(tag["Status"] == "Active" for tag in tags):
        yield Remark(_SUBJECT, "ok", "is active")
    else:
        found = "is not active" if tags else "is not known to Billing yet"
        advice = "activate it in Billing, a day after the first `up`: until then the budget counts nothing"
        yield Remark(_SUBJECT, "warning", found, advice)
