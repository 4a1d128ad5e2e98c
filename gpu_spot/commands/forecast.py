"""``gpu-spot forecast``: cost and availability of a stack file, and the effect of a change."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_spot.commands.stack import add_profile
from gpu_spot.errors import ExitStatus

if TYPE_CHECKING:
    from gpu_spot.forecast.stack import StackForecast


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "forecast",
        help="forecast the monthly cost of a stack file and the availability of its groups",
        epilog=f"Exit status: 0, {ExitStatus.INPUT} for invalid input, {ExitStatus.EXCEEDED} if a threshold "
        "is exceeded.",
    )
    parser.add_argument(
        "--base", type=Path, metavar="FILE", help="stack file before the change (default: no comparison)"
    )
    parser.add_argument("--head", type=Path, required=True, metavar="FILE", help="stack file")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.add_argument("--markdown", action="store_true", help="print Markdown (the default)")
    parser.add_argument(
        "--max-monthly-increase",
        type=float,
        metavar="USD",
        help="exit with status 3 if the middle of the range increases by more; requires --base",
    )
    parser.add_argument(
        "--min-availability",
        type=float,
        metavar="SHARE",
        help="exit with status 3 if the middle of a group's availability range is lower, 0 to 1",
    )
    _add_market_options(parser)
    parser.add_argument(
        "--file-system-gib",
        type=float,
        default=0.0,
        metavar="GIB",
        help="GiB stored on EFS, for the monthly cost (default: 0)",
    )
    parser.set_defaults(run=run)


def _add_market_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the market and the prices."""
    parser.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="DIR|FILE",
        help="recorded Spot market, one capacity pool per file (default: the fitted model)",
    )
    spot = parser.add_mutually_exclusive_group()
    spot.add_argument(
        "--spot-prices", type=Path, metavar="FILE", help="output of `aws ec2 describe-spot-price-history`"
    )
    spot.add_argument(
        "--account",
        action="store_true",
        help="read current Spot prices, placement scores and the hours of earlier runs of a schedule with "
        "your AWS credentials, which require ec2:DescribeSpotPriceHistory, ec2:GetSpotPlacementScores and, "
        "for a schedule, what `gpu-spot jobs` reads (default: the Spot prices that are "
        "shipped, with their dates, no scores)",
    )
    add_profile(parser)
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of replay processes (default: one per CPU core)",
    )


def run(args: argparse.Namespace) -> int:
    """Forecast and print. Returns `ExitStatus.EXCEEDED` if a threshold is exceeded."""
    from gpu_spot.commands import forecast_inputs
    from gpu_spot.forecast import outline, running, stack, text
    from gpu_spot.forecast.groups import all_entries
    from gpu_spot.progress import progress

    _check(args)
    recorded = forecast_inputs.market(args)
    versions = []
    for option, file in (("--base", args.base), ("--head", args.head)):
        if file is not None:
            config, settings = forecast_inputs.read(option, file)
            clients = forecast_inputs.account_clients(args, config)
            settings = forecast_inputs.measured(clients, config, settings)
            price = forecast_inputs.prices(args, clients, settings)
            versions.append((config, settings, price, clients, stack.questions(settings, price, recorded)))
    _, settings, price, account, _ = versions[-1]
    sys.stderr.writelines(f"{note}\n" for note in settings.preview_warnings(datetime.now(UTC)))
    capacities = {entry.name: entry.capacity for entry in all_entries(settings)}
    scored = forecast_inputs.scores(account, capacities, settings.region)
    types = {kind for capacity in capacities.values() for kind in capacity.types}
    basis = forecast_inputs.basis(args, price, sorted(types), settings.network.zones, recorded, scored)
    if limited := ", ".join(name for name, capacity in capacities.items() if capacity.max_price):
        basis = replace(basis, market=f"{basis.market}, as if without maxPrice of {limited}")
    with ExitStack() as opened:
        programs = [opened.enter_context(running.processes(1)) for _ in versions]
        replays = opened.enter_context(running.processes(max(1, args.processes)))
        on_progress = opened.enter_context(progress("replaying weeks"))
        declared = running.declared([(config, settings) for config, settings, *_ in versions], programs)
        outlooks = stack.forecast_questions(
            (question for *_, questions_by_group in versions for question in questions_by_group.values()),
            lambda questions: running.forecast_slots(questions, recorded, replays, on_progress),
        )
        forecasts = [
            stack.forecast(settings, price, questions_by_group, outlooks, wait(), args.file_system_gib)
            for (_, settings, price, _, questions_by_group), wait in zip(versions, declared, strict=True)
        ]
    head, base = forecasts[-1], forecasts[0] if args.base else None
    over = list(_exceeded(args, base, head))
    if args.json:
        document = {**text.to_json(base, head, basis), "exceeded": over}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.write(f"{text.markdown(base, head, basis)}\n{outline.markdown(settings)}")
    sys.stderr.writelines(f"gpu-spot: {message}\n" for message in over)
    return ExitStatus.EXCEEDED if over else ExitStatus.DONE


def _check(args: argparse.Namespace) -> None:
    increase, min_availability = args.max_monthly_increase, args.min_availability
    if increase is not None and args.base is None:
        raise ValueError("--max-monthly-increase requires --base")
    if increase is not None and not abs(increase) < float("inf"):
        raise ValueError(f"--max-monthly-increase must be a number of US dollars, not {increase:g}")
    if min_availability is not None and not 0 <= min_availability <= 1:
        raise ValueError(f"--min-availability must be from 0 to 1, not {min_availability:g}")
    if not 0 <= args.file_system_gib < float("inf"):
        raise ValueError(f"--file-system-gib must be a number of at least 0, not {args.file_system_gib:g}")


def _exceeded(args: argparse.Namespace, base: StackForecast | None, head: StackForecast) -> Iterator[str]:
    max_increase, min_availability = args.max_monthly_increase, args.min_availability
    if max_increase is not None and base is not None:
        more = head.month.middle - base.month.middle
        if unpriced := ", ".join(head.unknown_change(base)):
            yield f"{unpriced}: not priced, so --max-monthly-increase cannot be checked"
        if more > max_increase:
            yield (
                f"the monthly cost increases by ${more:,.2f}, which is more than the permitted "
                f"${max_increase:,.2f}"
            )
    if min_availability is not None:
        for group in head.groups:
            if group.slots and group.availability.middle < min_availability:
                ready = f"{group.availability.middle:.5f}"
                yield (
                    f"the availability of {group.name} is {ready}, which is less than the required "
                    f"{min_availability:g}"
                )
