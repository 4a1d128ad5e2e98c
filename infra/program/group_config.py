"""The controller's configuration of a group, derived from an entry of the stack file."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.group.config import GroupConfig, PolicyChoice, RunRules
from infra.schema import Capacity


def build(
    capacity: Capacity,
    *,
    slots: Mapping[str, int],
    drain_seconds: int = 0,
    break_before_make: bool = False,
    run: str = "",
    block: str = "",
    dataset: str = "",
    prepared_by: str = "",
    deadline: float = 0.0,
    budget: float = 0.0,
    on_premises: int = 0,
    on_premises_hosts: Mapping[str, int] | None = None,
    http_concurrency: int = 0,
    runs: RunRules | None = None,
) -> GroupConfig:
    """Return a group's configuration without the names that AWS assigns.

    ``capacity`` is the capacity of the entry; the other arguments are fields of `GroupConfig` that depend on
    the kind of entry.
    """
    fallback = capacity.fallback
    return GroupConfig(
        kind=capacity.kind,
        primary="",
        base=capacity.on_demand_base,
        spot_percentage=capacity.spot_percentage,
        maximum=capacity.maximum,
        slots=slots,
        weights={kind: weight for kind, weight in capacity.weights.items() if weight != 1},
        drain_seconds=drain_seconds,
        break_before_make=break_before_make,
        policy=PolicyChoice(fallback.policy, fallback.policy_parameters),
        run=run,
        reserved=fallback.reservation.count if fallback.reservation else 0,
        block=block,
        dataset=dataset,
        prepared_by=prepared_by,
        deadline=deadline,
        on_premises=on_premises,
        on_premises_hosts=on_premises_hosts or {},
        budget=budget,
        http_concurrency=http_concurrency,
        runs=runs,
    )
