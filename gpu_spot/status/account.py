"""What was seen of a stack, for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpu_spot.jobs import account
from gpu_spot.status.seen import PHASES, GroupSeen, StackSeen, phase_of
from lambdas.core.money.costs import HourlyCost


def to_json(seen: StackSeen) -> dict[str, Any]:
    """Return it as JSON values: times as epoch seconds, money in US dollars an hour, None for not known."""
    return {
        "stack": seen.stack,
        "region": seen.region,
        "at": seen.now,
        "is_well": seen.is_well,
        "alarms": [asdict(one) for one in seen.alarms],
        **_cost(seen.cost),
        "groups": [_group(one) for one in seen.groups],
        "jobs": [account.to_json(job) for job in seen.jobs],
        "decisions": [asdict(one) for one in seen.decisions],
        "tenants": {host: list(tenants) for host, tenants in seen.declared.tenants.items()},
        "on_kubernetes": list(seen.declared.on_kubernetes),
        "calls": seen.calls,
    }


def _group(group: GroupSeen) -> dict[str, Any]:
    return {
        "group": group.name,
        "target": group.target,
        **{phase: group.slots(phase) for phase in PHASES},
        "missing": group.missing,
        "on_premises": group.elsewhere,
        "mode": group.mode,
        "run": group.run or None,
        **_cost(group.cost),
        "instances": [
            {
                "instance": one.id,
                "type": one.pool.instance_type,
                "zone": one.pool.zone,
                "market": one.market.value,
                "side": one.side.value,
                "state": phase_of(one),
                "launched": one.launched_at,
                "deadline": one.deadline,
            }
            for one in group.instances
        ],
        "workers": [asdict(one) for one in group.workers],
        "trouble": group.trouble or None,
        "unread": list(group.unread),
    }


def _cost(cost: HourlyCost | None) -> dict[str, float | None]:
    return {
        "cost_usd_hour": None if cost is None else round(cost.paid, 4),
        "on_demand_usd_hour": None if cost is None else round(cost.on_demand, 4),
    }
