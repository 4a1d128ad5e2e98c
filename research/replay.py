"""Cost and availability of capacity policies on Spot capacity traces: ``python -m research.replay``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from gpu_spot.commands import files, traces
from market.rules import HOSTILE, TICK_SECONDS, Rules
from research.simulation.comparison.contenders import AT_VALUE, NAMES, named
from research.simulation.comparison.runs import PolicyOutcome, compare
from research.simulation.plots import frontier

_EPILOG: Final = f"""The tick is {TICK_SECONDS:g} s; the first hour is not counted. Policies:
{", ".join(NAMES)}, and {AT_VALUE} with a shortage cost."""

MARKET: Final = {
    "notice": "share of interruptions with a 120 s notice (0.9)",
    "spot_cold_start": "seconds until a Spot instance is ready (180)",
    "on_demand_cold_start": "seconds until an On-Demand instance is ready (60)",
    "spot_price": "Spot price ÷ On-Demand price (0.3)",
    "on_demand_price": "US dollars per hour; Spot prices are then those of the traces",
    "drain_seconds": "seconds before a deadline without work (0)",
}
FAULTS: Final = {
    "on_demand_refusal": "probability that an On-Demand launch fails",
    "warm_refusal": "probability that a warm instance fails to start",
    "api_failure": "probability that a controller poll fails",
    "retry_seconds": "delay of a group's next attempt after a failed Spot launch",
    "replace_seconds": "delay until a group detects a terminated instance",
    "look_seconds": "interval of the controller's scheduled runs",
    "early": "share of interruptions preceded by a rebalance recommendation",
    "false_alarms": "false recommendations per correct one",
    "shortest_notice_seconds": "minimum warning time of an interruption notice, at most 120",
    "boot_spread": "standard deviation of the logarithm of boot times",
    "on_demand_episodes": "share of Spot outages in which On-Demand launches fail, too",
    "drop_spread": "share of the trace interval over which a drop is spread",
    "type_lag_seconds": "maximum delay of an instance type behind the others of its zone",
    "ceiling": "maximum instances as a multiple of the target",
}
"""Fields of ``Rules`` that are options of the groups "market" and "fault injection", with their help."""
_OPTION_NAMES: Final = {
    "notice": "notice-share",
    "spot_cold_start": "cold-start",
    "early": "rebalance-share",
    "look_seconds": "poll-seconds",
}
"""Options that are not named after their field."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(prog="python -m research.replay", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--trace", nargs="+", type=Path, required=True, metavar="DIR|FILE", help="traces, one pool per file"
    )
    parser.add_argument(
        "--target", type=int, required=True, metavar="N", help="target number of ready workers"
    )
    parser.add_argument(
        "--pool-size",
        type=int,
        metavar="K",
        help="multiplier of each sample (default: 8 for 0/1 traces, else 1)",
    )
    parser.add_argument(
        "--policy", default="expected-cost", metavar="NAME[,NAME…]|all", help="policies to compare"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random number generator (default: 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as a JSON list")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot cost against availability: .html or .svg"
    )
    market = parser.add_argument_group("market")
    _add_numbers(market, MARKET)
    market.add_argument(
        "--warm-instances",
        type=int,
        metavar="N",
        help="size of the warm pool; beyond it On-Demand starts cold (unlimited)",
    )
    market.add_argument(
        "--warm-reuse", action="store_true", help="return released On-Demand instances to the warm pool"
    )
    market.add_argument("--types", type=int, metavar="N", help="instance types per trace, one pool each (1)")
    faults = parser.add_argument_group("fault injection, off by default")
    faults.add_argument(
        "--inject-faults",
        action="store_true",
        help="inject the faults of the demo; options below override them",
    )
    _add_numbers(faults, FAULTS)
    return parser


def _add_numbers(group: argparse._ArgumentGroup, fields: Mapping[str, str]) -> None:
    for name, meaning in fields.items():
        option = f"--{_OPTION_NAMES.get(name, name.replace('_', '-'))}"
        group.add_argument(option, dest=name, type=float, metavar="X", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Replay, print a table and write the requested files. Raises ``ValueError`` for invalid input."""
    settings = {name: getattr(args, name) for name in (*MARKET, *FAULTS, "warm_instances", "types")}
    chosen = {name: value for name, value in settings.items() if value is not None}
    hostile = HOSTILE if args.inject_faults else {}
    rules = Rules(**{**hostile, **chosen}, seed=args.seed, warm_reuse=args.warm_reuse)
    policies = named(args.policy)
    if args.plot is not None:
        frontier.check(args.plot)
    for option, file in (("--json", args.json), ("--plot", args.plot)):
        files.check_writable(option, file)
    outcomes = list(compare(traces.load(args.trace), rules, policies, args.target, args.pool_size))
    console = Console()
    # A pipe has no width: use a fixed one.
    (console if console.is_terminal else Console(width=120)).print(_table(outcomes))
    if args.json is not None:
        files.write("--json", args.json, json.dumps([o.to_json() for o in outcomes], indent=1) + "\n")
    if args.plot is not None:
        points = [frontier.Point(o.policy, o.cost_vs_bound, o.availability) for o in outcomes]
        title = f"target {args.target}, {outcomes[0].pools} pools"
        files.write("--plot", args.plot, frontier.text(args.plot, points, title))
    return 0


def _table(outcomes: Sequence[PolicyOutcome]) -> Table:
    columns = {
        "avail %": "{availability:.3%}",
        "full %": "{full_fraction:.2%}",
        "none min": "{minutes_none_ready:.0f}",
        "max loss": "{largest_loss}",
        "cost": "{cost:.4f}",
        "÷ bound": "{cost_vs_bound:.4f}",
        "launches/d": "{launches_per_day:.1f}",
        "losses/d": "{interruptions_per_day:.1f}",
        "waste %": "{wasted_fraction:.1%}",
        "s": "{seconds:.2f}",
    }
    if any(o.standby_cost is not None for o in outcomes):
        columns["pool +cost"] = "{standby_cost:.4f}"
    table = Table("policy", *columns, box=None)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for o in outcomes:
        cells = (form.format_map(asdict(o)).rstrip("%") for form in columns.values())
        table.add_row(f"{o.policy} (default)" if o.default else o.policy, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return 1 after one line on standard error for invalid input."""
    args = parser().parse_args(arguments)
    try:
        return run(args)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"research.replay: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
