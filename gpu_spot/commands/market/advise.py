"""``gpu-spot advise``: region, pools, Spot share and warm pool for a budget or an availability."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from gpu_spot.commands import files
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
from gpu_spot.forecast import advice, advisor, choice, groups, running, stack
from gpu_spot.forecast.advice import RegionMarket
from gpu_spot.forecast.choice import Option, Trial
from gpu_spot.forecast.groups import entries
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.replayed import Traces
from gpu_spot.forecast.text import Basis
from gpu_spot.preflight.prices import of
from infra.catalogue.price_tables import EBS_GP3
from infra.schema import Service, Settings, Training

NONE_FITS: Final = 3
"""Exit status if no option meets the constraints."""
_SHOWN: Final = 8
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_ADVISOR_DATA: Final = "the data file of the Spot Instance Advisor"
_TRACES: Final = "files named ZONE_TYPE.json, such as us-west-2a_g6.xlarge.json"
_LIMITS: Final = (
    "Instance types are compared by slots, not by speed; the two kinds of groups are replayed alike, so kind "
    "is not compared."
)


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "advise",
        help="recommend region, types, zones, Spot share and warm pool for a budget or an availability",
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
    parser.add_argument(
        "--regions",
        nargs="+",
        default=[],
        metavar="REGION",
        help="compare these regions with that of the stack file; data, images, quotas and network are not "
        "compared",
    )
    parser.add_argument(
        "--spot-advisor",
        type=Path,
        metavar="FILE",
        help="data of the Spot Instance Advisor (spot-advisor-data.json): interruption rates, and savings "
        "where no Spot price is known",
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
    _, settings = read("--head", args.head)
    entry, recorded = _entry(settings, args), forecast_inputs.market(args)
    regions = list(_regions(args, settings, recorded))
    rests_on = _basis(args, regions, entry)
    tried = [(region, list(advice.options(entry, region))) for region in regions]
    with running.processes(max(1, args.processes)) as pool, progress_bar("tried") as progress:
        outlooks = stack.forecast_questions(
            (question for region, options in tried for question in advice.slot_questions(options, region)),
            lambda questions: running.forecast_slots(questions, recorded, pool, progress),
        )
    all_trials = [
        trial
        for region, options in tried
        for trial in advice.trials(options, region, outlooks, _disk_price(region))
    ]
    trials = choice.sound(all_trials)
    best = choice.choose(trials, budget=args.budget, availability=args.availability)
    shown = sorted(all_trials, key=lambda trial: (trial.cost, -trial.availability))
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
        sys.stdout.write(f"{rests_on} {_LIMITS}\n")
    return NONE_FITS if best is None else 0


def _disk_price(region: RegionMarket) -> float:
    """Return the US dollars of a GiB of a gp3 volume per month; 0 if unknown."""
    disk = of(EBS_GP3, region.prices.region)
    return 0.0 if disk is None else disk.usd


def _regions(args: argparse.Namespace, settings: Settings, recorded: Traces | None) -> Iterator[RegionMarket]:
    """Yield the stack file's region, then those of ``--regions``."""
    rates: advisor.Rates = {}
    if args.spot_advisor is not None:
        rates = files.read("--spot-advisor", args.spot_advisor, _ADVISOR_DATA, advisor.read)
    for name in dict.fromkeys((settings.region, *args.regions)):
        if not _REGION.fullmatch(name):
            raise ValueError(f"--regions is {name}, allowed: AWS Regions such as us-east-1")
        if args.spot_advisor is not None and name not in rates:
            raise ValueError(
                f"--spot-advisor is {args.spot_advisor}, which has no {name}, allowed: {_ADVISOR_DATA}"
            )
        priced = prices(args, settings, name)
        zones = _zones(settings, priced, recorded)
        region_rates = rates.get(name, {})
        yield RegionMarket(advisor.with_savings(priced, zones, region_rates), zones, region_rates, recorded)


def _zones(settings: Settings, priced: Prices, recorded: Traces | None) -> tuple[str, ...]:
    """Return the zones of a region: the stack file's, of other regions those with a price or a trace.

    If no zone of another region is known, as many are assumed as the stack file has. With traces, zones
    without one are left out.
    """
    region = priced.region
    traced = [groups.traced_pool(trace).zone for trace in recorded or ()]
    if region == settings.region:
        zones = tuple(settings.network.zones)
    else:
        seen_zones = {zone for zone in (*(pool.zone for pool in priced.spot), *traced) if zone[:-1] == region}
        assumed = [f"{region}{letter}" for letter in "abcdef"[: len(settings.network.zones)]]
        zones = tuple(sorted(seen_zones) or assumed)
    if recorded is not None and not (zones := tuple(zone for zone in zones if zone in traced)):
        raise ValueError(f"--trace has no zone of the group in {region}, allowed: {_TRACES}")
    return zones


def _basis(args: argparse.Namespace, regions: Sequence[RegionMarket], entry: Service | Training) -> Basis:
    scored: dict[str, int] = {}
    for region in regions:
        name = f"{entry.name} in {region.prices.region}" if len(regions) > 1 else entry.name
        scored |= scores(args, {name: entry.capacity}, region.prices.region)
    first = regions[0]
    rests_on = basis(args, first.prices, entry.capacity.types, first.recorded, scored)
    if args.spot_advisor is None:
        return rests_on
    return dataclasses.replace(
        rests_on, spot=f"average savings of the Spot Instance Advisor over 30 days, {rests_on.spot}"
    )


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
    frontier = choice.efficient(trials)
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
        where = f"region {option.region}, " if args.regions else ""
        wide.print(
            f"{entry.name}: {where}instanceTypes \\[{', '.join(option.types)}], "
            f"zones \\[{', '.join(option.zones)}], "
            f"{_parameters(option)}: ${best.cost:,.2f} a month, "
            f"available {100 * best.availability:.3f} %",
            highlight=False,
        )
        wide.print(f"Reason: {choice.reason(args.budget, args.availability, trials, best)}", highlight=False)
    columns = ("region", "Spot %", "base", "shortageCost", "warm", "zones", "interruptions", "types")
    table = Table("$ a month", "available %", *columns, box=None)
    for trial in frontier[:_SHOWN]:
        option = trial.option
        table.add_row(
            f"{trial.cost:,.2f}{' ←' if trial is best else ''}",
            f"{100 * trial.availability:.3f}",
            option.region,
            str(option.spot_percentage),
            str(option.on_demand_base),
            "" if option.shortage_cost is None else f"{option.shortage_cost:g}",
            str(option.warm),
            str(len(option.zones)),
            option.interruptions or "unknown",
            ", ".join(option.types),
        )
    wide.print(table)


def _parameters(option: Option) -> str:
    if option.shortage_cost is None:
        return "with Karpenter"
    mix = f"onDemandBase {option.on_demand_base}, spotPercentage {option.spot_percentage}"
    return f"{mix}, shortageCost {option.shortage_cost:g}, warmInstances {option.warm}"
