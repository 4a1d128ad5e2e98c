"""``gpu-spot advise``: types, zones, ``shortageCost`` and warm pool for a budget or an availability."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from gpu_spot.commands.market import forecast_inputs
from gpu_spot.commands.market.forecast_inputs import (
    INVALID_INPUT,
    add_market_options,
    basis,
    prices,
    progress_bar,
    read,
    scores,
)
from gpu_spot.forecast import advice, running, stack
from gpu_spot.forecast.advice import Option, Trial
from gpu_spot.forecast.groups import entries
from gpu_spot.preflight.prices import GP3_GIB_MONTH
from infra.schema import Service, Settings, Training

NONE_FITS: Final = 3
"""Exit status if no option meets the constraints."""
_SHOWN: Final = 8


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "advise",
        help="recommend types, zones, shortageCost and warm pool for a budget or an availability",
        epilog=f"Exit status: 0, {INVALID_INPUT} for invalid input, {NONE_FITS} if no option fits.",
    )
    parser.add_argument("--head", type=Path, required=True, metavar="FILE", help="stack file")
    parser.add_argument(
        "--group", metavar="NAME", help="service or job (required if the stack file has several)"
    )
    parser.add_argument("--target", type=int, metavar="N", help="override capacity.target")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="USD",
        help="maximum US dollars per month; --budget, --availability or both are required",
    )
    parser.add_argument(
        "--availability",
        type=float,
        metavar="SHARE",
        help="minimum share of the time in which a slot is ready, 0 to 1",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_market_options(parser)
    parser.set_defaults(run=partial(forecast_inputs.run, _run))


def _run(args: argparse.Namespace) -> int:
    if args.budget is None and args.availability is None:
        raise ValueError("--budget or --availability is required")
    if args.budget is not None and not 0 < args.budget < math.inf:
        raise ValueError(f"--budget is {args.budget:g}, allowed: a number above 0")
    if args.availability is not None and not 0 <= args.availability <= 1:
        raise ValueError(f"--availability is {args.availability:g}, allowed: 0 to 1")
    if args.trace:
        raise ValueError("--trace cannot be used with advise: a trace has no data on other types and zones")
    _, settings = read("--head", args.head)
    entry, priced = _entry(settings, args), prices(args, settings)
    rests_on = basis(args, priced, scores(args, {entry.name: entry.capacity}, settings.region))
    tried = list(advice.options(entry, settings.network.zones, priced))
    with running.processes(max(1, args.processes)) as pool, progress_bar("tried") as progress:
        outlooks = stack.forecast_questions(
            advice.slot_questions(tried, priced),
            lambda questions: running.forecast_slots(questions, None, pool, progress),
        )
    trials = advice.trials(tried, priced, outlooks, GP3_GIB_MONTH)
    best = advice.choose(trials, budget=args.budget, availability=args.availability)
    shown = sorted(trials, key=lambda trial: (trial.cost, -trial.availability))
    if args.json:
        document = {
            "basis": dataclasses.asdict(rests_on),
            "group": entry.name,
            "advice": None if best is None else dataclasses.asdict(best),
            "tried": [dataclasses.asdict(trial) for trial in shown],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        _print(args, entry, trials, best)
        sys.stdout.write(f"{rests_on} Instance types are compared by slots, not by speed.\n")
    return NONE_FITS if best is None else 0


def _entry(settings: Settings, args: argparse.Namespace) -> Service | Training:
    """Return the selected group, with ``--target`` applied."""
    by_name = {entry.name: entry for entry in entries(settings)}
    name = args.group if args.group is not None or len(by_name) != 1 else next(iter(by_name))
    if name not in by_name:
        raise ValueError(
            f"--group is {name}, allowed: {', '.join(by_name) or 'none, the stack file has no groups'}"
        )
    entry = by_name[name]
    if args.target is not None:
        if not 1 <= args.target <= 10_000 or (isinstance(entry, Training) and not entry.shares_group):
            raise ValueError(
                f"--target is {args.target}, allowed: 1 to 10000, and only for groups of several instances"
            )
        capacity = entry.capacity.model_copy(update={"target": args.target, "max": None})
        return entry.model_copy(update={"capacity": capacity})
    if entry.capacity.target == 0:
        raise ValueError(f"the target of {name} is 0, --target is required")
    return entry


def _print(
    args: argparse.Namespace, entry: Service | Training, trials: Sequence[Trial], best: Trial | None
) -> None:
    console = Console()
    wide = console if console.is_terminal else Console(width=120)
    frontier = advice.efficient(trials)
    if best is None:
        most_available = max(trials, key=lambda trial: trial.availability)
        cheapest = min(trials, key=lambda trial: trial.cost)
        wide.print(
            f"No option of {len(trials)} fits: the cheapest costs ${cheapest.cost:,.2f} a month, the most "
            f"available is ready {100 * most_available.availability:.3f} % of the time.",
            highlight=False,
        )
    else:
        option = best.option
        wide.print(
            f"{entry.name}: instanceTypes \\[{', '.join(option.types)}], "
            f"zones \\[{', '.join(option.zones)}], "
            f"{_parameters(option)}: ${best.cost:,.2f} a month, "
            f"available {100 * best.availability:.3f} %",
            highlight=False,
        )
        wide.print(f"Reason: {advice.reason(args.budget, args.availability, trials, best)}", highlight=False)
    table = Table("$ a month", "available %", "shortageCost", "warm", "zones", "types", box=None)
    for trial in frontier[:_SHOWN]:
        option = trial.option
        table.add_row(
            f"{trial.cost:,.2f}{' ←' if trial is best else ''}",
            f"{100 * trial.availability:.3f}",
            "" if option.shortage_cost is None else f"{option.shortage_cost:g}",
            str(option.warm),
            str(len(option.zones)),
            ", ".join(option.types),
        )
    wide.print(table)


def _parameters(option: Option) -> str:
    if option.shortage_cost is None:
        return "with Karpenter"
    return f"shortageCost {option.shortage_cost:g}, warmInstances {option.warm}"
