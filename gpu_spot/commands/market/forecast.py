"""``gpu-spot forecast``: what a stack file will cost and serve, and what a change of it changes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_spot.commands.market import outlook
from gpu_spot.commands.market.outlook import WRONG
from gpu_spot.forecast import running, stack, words
from gpu_spot.forecast.stack import StackForecast

EXCEEDED: Final = 3
"""The exit status where a threshold is exceeded."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "forecast",
        help="say what a stack file will cost a month and how available its groups will be",
        epilog=f"Exit status: 0, {WRONG} for wrong input, {EXCEEDED} where a threshold is exceeded.",
    )
    parser.add_argument(
        "--base", type=Path, metavar="FILE", help="the stack file before the change (default: no comparison)"
    )
    parser.add_argument("--head", type=Path, required=True, metavar="FILE", help="the stack file")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.add_argument("--markdown", action="store_true", help="print Markdown (as without either)")
    parser.add_argument(
        "--max-monthly-increase",
        type=float,
        metavar="USD",
        help="exit 3 above so much more in the middle of the range; needs --base",
    )
    parser.add_argument(
        "--min-availability",
        type=float,
        metavar="SHARE",
        help="exit 3 where a group is less available in the middle of its range, 0 to 1",
    )
    outlook.add_market(parser)
    parser.add_argument(
        "--file-system-gib",
        type=float,
        default=0.0,
        metavar="GIB",
        help="GiB on EFS, to be counted in the month (default: 0)",
    )
    parser.set_defaults(run=partial(outlook.run, _run))


def _run(args: argparse.Namespace) -> int:
    _check(args)
    recorded = outlook.market(args)
    versions = []
    for option, file in (("--base", args.base), ("--head", args.head)):
        if file is not None:
            config, settings = outlook.read(option, file)
            price = outlook.prices(args, settings)
            versions.append((config, settings, price, stack.questions(settings, price, recorded)))
    _, settings, price, _ = versions[-1]
    sys.stderr.writelines(f"{remark}\n" for remark in settings.remarks(datetime.now(UTC)))
    scored = outlook.scores(args, settings.capacities, settings.region)
    told_basis = outlook.basis(args, price, scored)
    with ExitStack() as opened:
        programs = [opened.enter_context(running.processes(1)) for _ in versions]
        replays = opened.enter_context(running.processes(max(1, args.processes)))
        told = opened.enter_context(outlook.bar("replayed"))
        declared = running.declared([(config, settings) for config, settings, *_ in versions], programs)
        outlooks = stack.answered(
            (question for *_, asked in versions for question in asked.values()),
            lambda questions: running.answers(questions, recorded, replays, told),
        )
        found = [
            stack.forecast(settings, price, asked, outlooks, wait(), args.file_system_gib)
            for (_, settings, price, asked), wait in zip(versions, declared, strict=True)
        ]
    head, base = found[-1], found[0] if args.base else None
    over = list(_exceeded(args, base, head))
    if args.json:
        told_json = {**words.to_json(base, head, told_basis), "exceeded": over}
        sys.stdout.write(json.dumps(told_json, indent=1) + "\n")
    else:
        sys.stdout.write(words.markdown(base, head, told_basis))
    sys.stderr.writelines(f"gpu-spot: {one}\n" for one in over)
    return EXCEEDED if over else 0


def _check(args: argparse.Namespace) -> None:
    if args.max_monthly_increase is not None and args.base is None:
        raise ValueError("--max-monthly-increase without --base, allowed: with it")
    least = args.min_availability
    if least is not None and not 0 <= least <= 1:
        raise ValueError(f"--min-availability is {least:g}, allowed: 0 to 1")
    if not 0 <= args.file_system_gib < float("inf"):
        raise ValueError(f"--file-system-gib is {args.file_system_gib:g}, a number ≥ 0 is needed")


def _exceeded(args: argparse.Namespace, base: StackForecast | None, head: StackForecast) -> Iterator[str]:
    most, least = args.max_monthly_increase, args.min_availability
    if most is not None and base is not None:
        more = head.month.middle - base.month.middle
        unknown = [group.name for group in head.groups if group.cost is None]
        if unknown:
            yield f"the cost of {', '.join(unknown)} is not known, a bound on it cannot be kept"
        if more > most:
            yield f"the month costs ${more:,.2f} more, allowed: at most ${most:,.2f}"
    if least is not None:
        for group in head.groups:
            if group.slots and group.availability.middle < least:
                ready = f"{group.availability.middle:.5f}"
                yield f"{group.name} is available {ready}, allowed: at least {least:g}"
