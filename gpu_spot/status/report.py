"""The JSON form of a stack's snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gpu_spot.jobs import report
from gpu_spot.status.snapshot import PHASES, GroupSnapshot, StackSnapshot
from gpu_spot.status.spot_requests import SpotRequestCount
from lambdas.core.money.costs import HourlyCost


def to_json(snapshot: StackSnapshot) -> dict[str, Any]:
    """Return a snapshot as JSON values.

    Times are epoch seconds, money US dollars per hour, None is unknown.
    """
    return {
        "stack": snapshot.stack,
        "region": snapshot.region,
        "at": snapshot.now,
        "is_well": snapshot.is_healthy,
        "alarms": [
            {"name": alarm.name, "since": alarm.since, "says": alarm.description} for alarm in snapshot.alarms
        ],
        **_cost_json(snapshot.cost),
        "groups": [_group_json(group) for group in snapshot.groups],
        "jobs": [report.to_json(job) for job in snapshot.jobs],
        "decisions": [asdict(decision) for decision in snapshot.decisions],
        "tenants": {host: list(tenants) for host, tenants in snapshot.declared.tenants.items()},
        "on_kubernetes": list(snapshot.declared.on_kubernetes),
        "calls": snapshot.calls,
    }


def _group_json(group: GroupSnapshot) -> dict[str, Any]:
    document: dict[str, Any] = {
        "group": group.name,
        "condition": group.condition,
        "target": group.target,
        **{phase: group.slots(phase) for phase in PHASES},
        "interrupted": group.interrupted_slots,
        "missing": group.missing_slots,
        "on_premises": group.on_premises_slots,
        "mode": group.mode,
        "run": group.run or None,
        **_cost_json(group.cost),
        "warm_pool_lacks_since": group.warm_pool_lacks_since,
        "instances": [
            {
                "instance": instance.id,
                "type": instance.pool.instance_type,
                "zone": instance.pool.zone,
                "market": instance.purchase_option.value,
                "side": instance.group_role.value,
                "state": group.phase_of(instance),
                "launched": instance.launched_at,
                "deadline": instance.deadline,
            }
            for instance in group.instances
        ],
        "workers": [asdict(count) for count in group.workers],
        "spot_requests": None if group.spot_requests is None else _requests_json(group.spot_requests),
        "images": None if group.images is None else [asdict(image) for image in group.images],
        "trouble": group.error or None,
        "unread": list(group.warnings),
        "tenant_waits": None if group.tenant_waits is None else [asdict(wait) for wait in group.tenant_waits],
    }
    if group.error:
        document |= dict.fromkeys(document.keys() - {"group", "condition", "trouble", "unread"})
    return document


def _requests_json(requests: Iterable[SpotRequestCount]) -> list[dict[str, Any]]:
    return [
        {
            "state": count.state,
            "code": count.code,
            "class": None if count.status_class is None else count.status_class.value,
            "count": count.count,
            "updated": count.updated_at,
        }
        for count in requests
    ]


def _cost_json(cost: HourlyCost | None) -> dict[str, float | None]:
    return {
        "cost_usd_hour": None if cost is None else round(cost.paid, 4),
        "on_demand_usd_hour": None if cost is None else round(cost.on_demand, 4),
    }
