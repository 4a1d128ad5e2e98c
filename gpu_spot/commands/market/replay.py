"""``gpu-spot replay``: what a capacity policy would have cost, and how ready it would have been."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from gpu_spot.commands import files
from gpu_spot.commands.market import traces
from market.comparison.contenders import AT_VALUE, NAMES, named
from market.comparison.runs import PolicyOutcome, compare
from market.plots import frontier
from market.rules import HOSTILE, TICK_SECONDS, Rules

_EPILOG: Final = f"""The tick is {TICK_SECONDS:g} s and the first hour is not counted. A policy is
{", ".join(NAMES)}, or {AT_VALUE}, at a shortage cost."""

_NUMBERS: Final = ("avail %", "full %", "cost", "÷ bound", "launches/d", "losses/d", "waste %", "s")
TROUBLE: Final = {
    "on_demand_refusal": "probability that on-demand is refused",
    "warm_refusal": "probability that a warm instance is not started",
    "api_failure": "probability that a look fails",
    "retry_seconds": "a group's wait after a refused spot launch",
    "replace_seconds": "until a group finds that an instance has ended",
    "look_seconds": "the controller's schedule, where no event wakes it",
    "early": "share of drops with a rebalance recommendation ahead",
    "false_alarms": "recommendations without a drop, for each with one",
    "shortest_notice_seconds": "notices come between so long and 120 s ahead",
    "boot_spread": "standard deviation of the logarithm of boot times",
    "on_demand_episodes": "share of the times without spot in which on-demand is refused, too",
    "drop_spread": "share of the trace's gap over which a drop is spread",
    "type_lag_seconds": "by so much at most a type is behind its zone's others",
    "ceiling": "most instances, times the target",
}
"""Fields of ``Rules`` that are options."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "replay", help="replay spot capacity traces against capacity policies", epilog=_EPILOG
    )
    parser.add_argument(
        "--trace", nargs="+", type=Path, required=True, metavar="DIR|FILE", help="a pool each file"
    )
    parser.add_argument("--target", type=int, required=True, metavar="N", help="workers that shall be ready")
    parser.add_argument(
        "--pool-size", type=int, metavar="K", help="times each sample (default: 8 for 0/1 traces, else 1)"
    )
    parser.add_argument("--policy", default="expected-cost", metavar="NAME[,NAME…]|all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes, a list")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot cost against availability: .html or .svg"
    )
    market = parser.add_argument_group("the market")
    number: dict[str, Any] = {"type": float, "metavar": "X"}
    market.add_argument("--notice", default=0.9, help="share of drops announced 120 s ahead (0.9)", **number)
    market.add_argument("--cold-start", default=180.0, help="seconds until spot is ready (180)", **number)
    market.add_argument(
        "--on-demand-cold-start", default=60.0, help="seconds until on-demand is ready (60)", **number
    )
    market.add_argument("--spot-price", default=0.3, help="spot ÷ on-demand (0.3)", **number)
    market.add_argument(
        "--on-demand-price", help="US dollars an hour; spot then costs what the trace says", **number
    )
    market.add_argument(
        "--drain-seconds", default=0.0, help="no work in the last seconds before a deadline (0)", **number
    )
    market.add_argument(
        "--warm-instances", type=int, metavar="N", help="beyond N on-demand takes the cold start (no bound)"
    )
    market.add_argument(
        "--warm-reuse", action="store_true", help="on-demand that is released returns to the warm pool"
    )
    market.add_argument(
        "--types", type=int, default=1, metavar="N", help="types that share a trace, a pool each (1)"
    )
    trouble = parser.add_argument_group("trouble, none by default")
    trouble.add_argument(
        "--hostile",
        action="store_true",
        help="what AWS does besides, as in the demo; what follows overrides it",
    )
    for name, meaning in TROUBLE.items():
        trouble.add_argument(f"--{name.replace('_', '-')}", help=meaning, **number)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, print a table, and write what was asked for; raise ``ValueError`` for what a user can mend."""
    told = {name: getattr(args, name) for name in TROUBLE if getattr(args, name) is not None}
    rules = Rules(
        **{**(HOSTILE if args.hostile else {}), **told},
        seed=args.seed,
        notice=args.notice,
        spot_cold_start=args.cold_start,
        on_demand_cold_start=args.on_demand_cold_start,
        spot_price=args.spot_price,
        drain_seconds=args.drain_seconds,
        on_demand_price=args.on_demand_price,
        warm_instances=args.warm_instances,
        warm_reuse=args.warm_reuse,
        types=args.types,
    )
    contenders = named(args.policy)
    if args.plot is not None:
        frontier.check(args.plot)
    for option, file in (("--json", args.json), ("--plot", args.plot)):
        files.can_write(option, file)
    outcomes = list(compare(traces.load(args.trace), rules, contenders, args.target, args.pool_size))
    console = Console()
    # In a pipe there is no terminal whose width counts.
    (console if console.is_terminal else Console(width=120)).print(_table(outcomes))
    if args.json is not None:
        files.write("--json", args.json, json.dumps([o.to_json() for o in outcomes], indent=1) + "\n")
    if args.plot is not None:
        points = [frontier.Point(o.policy, o.cost_vs_bound, o.availability) for o in outcomes]
        title = f"target {args.target}, {outcomes[0].pools} pools"
        files.write("--plot", args.plot, frontier.text(args.plot, points, title))
    return 0


def _table(outcomes: Sequence[PolicyOutcome]) -> Table:
    pooled = any(o.standby_cost is not None for o in outcomes)
    table = Table("policy", *_NUMBERS, *(["pool +cost"] if pooled else []), box=None)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for o in outcomes:
        table.add_row(
            f"{o.policy} (default)" if o.default else o.policy,
            f"{100 * o.availability:.3f}",
            f"{100 * o.full_fraction:.2f}",
            f"{o.cost:.4f}",
            f"{o.cost_vs_bound:.4f}",
            f"{o.launches_per_day:.1f}",
            f"{o.interruptions_per_day:.1f}",
            f"{100 * o.wasted_fraction:.1f}",
            f"{o.seconds:.2f}",
            *([f"{o.standby_cost:.4f}"] if o.standby_cost is not None else []),
        )
    return table
