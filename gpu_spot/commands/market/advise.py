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

from gpu_spot.commands.market import outlook
from gpu_spot.commands.market.outlook import WRONG, add_market, bar, basis, prices, read, scores
from gpu_spot.forecast import advice, running, stack
from gpu_spot.forecast.advice import Option, Trial
from gpu_spot.forecast.groups import entries
from gpu_spot.preflight.prices import GP3_GIB_MONTH
from infra.schema import Service, Settings, Training

NONE_FITS: Final = 3
"""The exit status where nothing that was tried keeps what was asked."""
_SHOWN: Final = 8


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "advise",
        help="say which types, zones, shortageCost and warm pool keep a budget or an availability",
        epilog=f"It writes nothing. Exit status: 0, {WRONG} for wrong input, {NONE_FITS} where nothing fits.",
    )
    parser.add_argument("--head", type=Path, required=True, metavar="FILE", help="the stack file")
    parser.add_argument(
        "--group", metavar="NAME", help="a service or job of it (needed where it has several)"
    )
    parser.add_argument("--target", type=int, metavar="N", help="in place of the file's capacity.target")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="USD",
        help="US dollars a month, at most; this or --availability is needed, or both",
    )
    parser.add_argument(
        "--availability",
        type=float,
        metavar="SHARE",
        help="least share of the time in which a slot is ready, 0 to 1",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_market(parser)
    parser.set_defaults(run=partial(outlook.run, _run))


def _run(args: argparse.Namespace) -> int:
    if args.budget is None and args.availability is None:
        raise ValueError("neither --budget nor --availability is given, one of them is needed")
    if args.budget is not None and not 0 < args.budget < math.inf:
        raise ValueError(f"--budget is {args.budget:g}, a number > 0 is needed")
    if args.availability is not None and not 0 <= args.availability <= 1:
        raise ValueError(f"--availability is {args.availability:g}, allowed: 0 to 1")
    if args.trace:
        raise ValueError("--trace with advise, which compares types and zones of no trace, allowed: without")
    _, settings = read("--head", args.head)
    entry, priced = _entry(settings, args), prices(args, settings)
    rests_on = basis(args, priced, scores(args, {entry.name: entry.capacity}, settings.region))
    tried = list(advice.options(entry, settings.network.zones, priced))
    with running.processes(max(1, args.processes)) as pool, bar("tried") as told:
        outlooks = stack.answered(
            advice.asked(tried, priced), lambda questions: running.answers(questions, None, pool, told)
        )
    trials = advice.trials(tried, priced, outlooks, GP3_GIB_MONTH)
    best = advice.choose(trials, budget=args.budget, availability=args.availability)
    shown = sorted(trials, key=lambda one: (one.cost, -one.availability))
    if args.json:
        found = {
            "basis": dataclasses.asdict(rests_on),
            "group": entry.name,
            "advice": None if best is None else dataclasses.asdict(best),
            "tried": [dataclasses.asdict(one) for one in shown],
        }
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        _print(args, entry, trials, best)
        sys.stdout.write(f"{rests_on} Types count alike, however fast they are.\n")
    return NONE_FITS if best is None else 0


def _entry(settings: Settings, args: argparse.Namespace) -> Service | Training:
    """Return the group that is meant, with the target that is meant."""
    known = {entry.name: entry for entry in entries(settings)}
    name = args.group if args.group is not None or len(known) != 1 else next(iter(known))
    if name not in known:
        raise ValueError(f"--group is {name}, allowed: {', '.join(known) or 'none, the file has none'}")
    entry = known[name]
    if args.target is not None:
        if not 1 <= args.target <= 10_000 or (isinstance(entry, Training) and not entry.shares_group):
            raise ValueError(f"--target is {args.target}, allowed: 1 to 10000, and none for a job of one")
        capacity = entry.capacity.model_copy(update={"target": args.target, "max": None})
        return entry.model_copy(update={"capacity": capacity})
    if entry.capacity.target == 0:
        raise ValueError(f"{name} has target 0, a --target is needed")
    return entry


def _print(
    args: argparse.Namespace, entry: Service | Training, trials: Sequence[Trial], best: Trial | None
) -> None:
    console = Console()
    wide = console if console.is_terminal else Console(width=120)
    frontier = advice.efficient(trials)
    if best is None:
        most = max(trials, key=lambda one: one.availability)
        least = min(trials, key=lambda one: one.cost)
        wide.print(
            f"Nothing of {len(trials)} tried fits: the cheapest costs {least.cost:,.2f} a month, the most "
            f"available is there {100 * most.availability:.3f} % of the time.",
            highlight=False,
        )
    else:
        option = best.option
        wide.print(
            f"{entry.name}: instanceTypes \\[{', '.join(option.types)}], "
            f"zones \\[{', '.join(option.zones)}], "
            f"{_knobs(option)}: ${best.cost:,.2f} a month, "
            f"available {100 * best.availability:.3f} %",
            highlight=False,
        )
        wide.print(f"Why: {advice.reason(args.budget, args.availability, trials, best)}", highlight=False)
    table = Table("$ a month", "available %", "shortageCost", "warm", "zones", "types", box=None)
    for one in frontier[:_SHOWN]:
        option = one.option
        table.add_row(
            f"{one.cost:,.2f}{' ←' if one is best else ''}",
            f"{100 * one.availability:.3f}",
            "" if option.shortage_cost is None else f"{option.shortage_cost:g}",
            str(option.warm),
            str(len(option.zones)),
            ", ".join(option.types),
        )
    wide.print(table)


def _knobs(option: Option) -> str:
    if option.shortage_cost is None:
        return "with Karpenter"
    return f"shortageCost {option.shortage_cost:g}, warmInstances {option.warm}"
