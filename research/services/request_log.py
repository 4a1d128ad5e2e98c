"""Compare scaling by a request log with scaling by the queue, on the same requests and Spot market.

    GPU_SPOT_TRACES=… python -m research.services.request_log [--out FILE] [--docs .]

One load with a daily curve and bursts, drawn several times. The log's counts are those of whole minutes, and
a minute old. The first day is for learning. The ratio at the same wait is between the queue's bill and the
log's at the setting of ``waitSeconds`` that gives the queue's 99th percentile, interpolated between settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np

from contracts.group.scaling_settings import Bounds
from research.parts.page import replace_part, table_of
from research.parts.run import parser_of, write
from research.services.scaling import World, market_text, played, worlds
from research.simulation.load.rules import Rule
from research.simulation.load.scaler_rule import LogRule, ScalerRule
from research.simulation.load.shapes import DAY, MEAN, SPEEDS, LoadShape
from research.simulation.load.worlds import BOOT, MAX_SLOTS

DAYS: Final = 2
SEEDS: Final = (1, 2)
WAIT: Final = 60.0
KNOB: Final = (20.0, 30.0, 45.0, WAIT)
SHAPE: Final = LoadShape("request log", bursts=4.0, silences=0)
PERCENTILES: Final = (50, 90, 99)


def rules() -> dict[str, Callable[[float], Rule]]:
    """Return the rules by name; each is made with the allowed wait (seconds)."""

    def bounds(wait: float) -> Bounds:
        return Bounds(wait, 1, MAX_SLOTS)

    def log(wait: float, **settings: Any) -> Rule:
        return LogRule(bounds(wait), BOOT, **settings)

    return {
        "queue": lambda wait: ScalerRule(bounds(wait), BOOT),
        "log of arrivals and ends": log,
        "log of ends": partial(log, counts_ended=True),
        "log of arrivals, slowest type stated": partial(log, stated_seconds=1 / min(SPEEDS.values())),
        "log of arrivals, mean type stated": partial(log, stated_seconds=1 / MEAN),
    }


def run(world: World, name: str, wait: float) -> dict[str, Any]:
    """Replay one rule; return its bill (in On-Demand workers) and waits (seconds) after the first day."""
    outcomes = [played(world, rules()[name](wait), seed, world.days) for seed in world.seeds]
    waits = np.concatenate([outcome.queue.waits(DAY, world.days * DAY) for outcome in outcomes])
    return {
        "rule": name,
        "wait_seconds": wait,
        "cost": float(np.mean([outcome.cost(1440, world.days * 1440) for outcome in outcomes])),
        **{f"p{share}_wait": float(np.percentile(waits, share)) for share in PERCENTILES},
    }


def measure(world: World) -> dict[str, Any]:
    """Replay all rules."""
    queue, log, *remaining = rules()
    tasks = [(queue, WAIT), *((log, wait) for wait in KNOB), *((name, WAIT) for name in remaining)]
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(run, *zip(*((world, *task) for task in tasks), strict=True)))
    of_log = sorted((row for row in rows if row["rule"] == log), key=lambda row: float(row["p99_wait"]))
    cost = np.interp(
        rows[0]["p99_wait"], [row["p99_wait"] for row in of_log], [row["cost"] for row in of_log]
    )
    return {
        "days": world.days,
        "seeds": len(world.seeds),
        "log_source": {
            "cost_ratio": rows[len(KNOB)]["cost"] / rows[0]["cost"],
            "cost_ratio_at_the_same_wait": float(cost) / rows[0]["cost"],
            "is_interpolated": bool(of_log[0]["p99_wait"] <= rows[0]["p99_wait"] <= of_log[-1]["p99_wait"]),
            "rows": rows,
        },
        "market": market_text(),
    }


def page_part(result: Mapping[str, Any]) -> str:
    """Return this benchmark's part of the page."""
    log_source = result["log_source"]
    columns = {
        "source": "{rule}, `waitSeconds` {wait_seconds:g}",
        "p50 wait": "{p50_wait:.0f}",
        "p90": "{p90_wait:.0f}",
        "p99": "{p99_wait:.0f}",
        "cost": "{cost:.2f}",
    }
    summary_text = (
        f"One load with bursts, {result['days']} days drawn {result['seeds']} times, the first for learning, "
        f"on {result['market']}. A log has a request's arrival, its end with its seconds, or both, counted "
        "by the minute and a minute old. With both, the log's bill is × "
        f"{log_source['cost_ratio']:.3f} of the queue's at the same `waitSeconds`, and × "
        f"{log_source['cost_ratio_at_the_same_wait']:.3f} at the queue's 99th percentile of the wait: a "
        "burst is seen a minute later. Cost is in On-Demand workers."
    )
    return "\n\n".join(["## Scaling by a request log", summary_text, table_of(columns, log_source["rows"])])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    parser = parser_of(__doc__, "request_log", docs=True)
    parser.add_argument("--days", type=int, default=DAYS, help=f"the first for learning ({DAYS})")
    args = parser.parse_args(arguments)
    [world] = worlds(args.days, [SHAPE], SEEDS)
    result = measure(world)
    write(args.out, result)
    print(text := page_part(result))
    if args.days >= DAYS:
        replace_part(args.docs, "request-log", text)


if __name__ == "__main__":
    main()
