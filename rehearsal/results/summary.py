"""The content of ``summary.json``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from market.rules import TICK_SECONDS
from rehearsal.results.moves import to_json
from rehearsal.results.run import Run


def summarise(run: Run) -> dict[str, Any]:
    """Return the figures of ``run`` as JSON values.

    Counts and shares exclude the warm-up. ``availability``, ``full_fraction``, ``cost_vs_on_demand``,
    ``spot_share`` (of billed instance time) and ``wasted_fraction`` are fractions of 1, and so is
    ``warm_pool_cost``, which is not part of the cost. ``cost_usd`` and ``on_demand_usd`` (the
    whole target on On-Demand) are US dollars at list prices, None without one. ``launch_failures`` counts the
    times at which launches of a group role started to fail. A training job has ``moves``, a shared host
    ``shared_host``.
    """
    ledger, counts = run.ledger, run.ledger.counts
    spot = sum(span.spot * span.ticks for span in ledger.since_warm_up())
    paid = spot + sum(span.on_demand * span.ticks for span in ledger.since_warm_up())
    slot_hours = sum(span.target * span.ticks for span in ledger.since_warm_up()) * TICK_SECONDS / 3600
    on_demand_usd = None if run.hour_price is None else run.hour_price * slot_hours
    interruptions, unannounced = counts.get("interruption", 0), counts.get("unannounced", 0)
    return {
        "stack": run.stack,
        "group": run.group,
        "policy": run.policy,
        "target": run.target,
        "hours": run.hours,
        "market": run.market if isinstance(run.market, str) else list(run.market),
        "pools": len(run.pools),
        "pool_size": run.pool_size,
        "seed": run.rules.seed,
        "resources": len(run.resources),
        "resource_types": dict(sorted(Counter(kind for kind, _ in run.resources).items())),
        "availability": ledger.availability,
        "full_fraction": ledger.full_fraction,
        "minutes_none_ready": ledger.minutes_none_ready,
        "largest_loss": ledger.largest_loss,
        "cost_vs_on_demand": ledger.cost,
        "cost_usd": None if on_demand_usd is None else on_demand_usd * ledger.cost,
        "on_demand_usd": on_demand_usd,
        "warm_pool_cost": ledger.standby_cost,
        "spot_share": spot / paid if paid else 0.0,
        "wasted_fraction": ledger.wasted_fraction,
        "interruptions": interruptions,
        "announced": interruptions - unannounced,
        "unannounced": unannounced,
        "notices": counts.get("notice", 0),
        "launch_failures": counts.get("refusal", 0),
        "spot_starts": counts.get("launch-spot", 0),
        "on_demand_starts": counts.get("launch-on-demand", 0),
        "releases": counts.get("release", 0),
        "decisions": len(run.decisions),
        "ticks": run.ticks,
        "ticks_played": run.ticks_played,
        "wall_seconds": round(run.wall_seconds, 3),
        **({} if run.migrations is None else {"moves": [to_json(move) for move in run.migrations.moves]}),
        **({} if run.tenancy is None else {"shared_host": asdict(run.tenancy)}),
    }
