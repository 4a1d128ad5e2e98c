"""Settings of an hourly budget: of a group (``capacity.budget``) and of the stack (``budget``)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import Model

Dollars: TypeAlias = Annotated[float, Field(ge=0.01, le=1_000_000)]


class BudgetLimits(Model):
    """Maximum hourly cost of instances in US dollars. Nothing is launched beyond it.

    Each slot counts at the On-Demand price of the most expensive instance type that could be launched, also
    if it is Spot: so no wrong price, queue or heartbeat can exceed the budget.
    """

    dollars_an_hour: Dollars | None = None
    """Maximum of all instances."""
    on_demand_dollars_an_hour: Dollars | None = None
    """Maximum of On-Demand Instances."""

    @field_validator("on_demand_dollars_an_hour")
    @classmethod
    def _has_a_limit(cls, dollars: float | None, info: ValidationInfo) -> float | None:
        if "dollars_an_hour" not in info.data:
            return dollars
        total = info.data["dollars_an_hour"]
        if dollars is None and total is None:
            raise ValueError("missing, as dollarsAnHour is, allowed: at least one of the two")
        if dollars is not None and total is not None and dollars > total:
            raise ValueError(f"{dollars:g} is above dollarsAnHour, allowed: at most {total:g}")
        return dollars
