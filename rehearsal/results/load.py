"""The load part of ``summary.json``."""

from __future__ import annotations

from typing import Any

from market.load.account import LoadAccount


def to_json(load: LoadAccount, warm_up: int) -> dict[str, Any]:
    """Return the account as JSON values: seconds, US dollars; workers and rates without the warm-up."""
    counted = load.minutes[min(warm_up, len(load.minutes) - 1) :]
    ready = [minute.ready for minute in counted]
    return {
        "wait_seconds": load.allowed,
        "requests": load.requests,
        "p50_wait_seconds": load.half,
        "p99_wait_seconds": load.p99_seconds,
        "longest_wait_seconds": load.longest,
        "late": round(load.late, 5),
        "peak_rate": round(max(minute.arriving for minute in counted), 3),
        "mean_ready": round(sum(ready) / len(ready), 2),
        "least_ready": min(ready),
        "most_ready": max(ready),
        "bill": round(load.paid, 2),
        "peak": {
            "instance_type": load.peak.instance_type,
            "count": load.peak.count,
            "hourly": load.peak.hourly,
        },
        "on_demand_for_peak": round(load.on_demand, 2),
        "bill_vs_peak": round(load.paid / load.on_demand, 4),
    }
