"""What a forecast can rest on, as options of the commands that make one: stack file, market, prices."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import boto3
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpu_spot.commands import files, project
from gpu_spot.commands.market import traces
from gpu_spot.forecast import account, price_list, running, words
from gpu_spot.forecast.prices import ASSUMED_SPOT, Prices, spot_history
from gpu_spot.forecast.replayed import Traces
from infra.schema import Capacity, Settings
from infra.settings import SettingsError, load_settings
from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig
from pulumi_declared.stackfile import load as load_stack

WRONG: Final = 2
"""The exit status for wrong input."""
_NAMED: Final = "Pulumi."
_A_STACK_FILE: Final = "a stack file such as Pulumi.dev.yaml"
_A_HISTORY: Final = "the JSON of `aws ec2 describe-spot-price-history`"


def add_market(parser: argparse.ArgumentParser) -> None:
    """Add what a forecast can rest on."""
    parser.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="DIR|FILE",
        help="a recorded market, a pool each file (default: the fitted model)",
    )
    spot = parser.add_mutually_exclusive_group()
    spot.add_argument(
        "--spot-prices", type=Path, metavar="FILE", help="JSON of `aws ec2 describe-spot-price-history`"
    )
    spot.add_argument(
        "--account",
        action="store_true",
        help="read spot prices and placement scores of now with your AWS credentials, which need "
        "ec2:DescribeSpotPriceHistory and ec2:GetSpotPlacementScores (default: spot is assumed at "
        f"{ASSUMED_SPOT:g} of on-demand, and no scores)",
    )
    parser.add_argument(
        "--price-list",
        action="store_true",
        help="read on-demand prices from the AWS Price List now, which needs pricing:GetProducts",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="that replay (one a core)"
    )


def run(work: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Return the exit status of ``work``; wrong input is told in one line."""
    try:
        return work(args)
    except (UserError, SettingsError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return WRONG


def read(option: str, file: Path) -> tuple[StackConfig, Settings]:
    """Return a stack file of this project, wherever it lies, and what it says."""
    name = file.name.removeprefix(_NAMED).partition(".")[0] if file.name.startswith(_NAMED) else "forecast"
    files.read(option, file, _A_STACK_FILE, str)
    try:
        config = load_stack(project.find(), name, file=file.resolve())
    except UserError as error:
        raise ValueError(f"{option} is {file} ({error}), allowed: {_A_STACK_FILE}") from None
    try:
        return config, load_settings(config.values)
    except SettingsError as error:
        raise ValueError(f"{option} is {file}: {'; '.join(str(error).splitlines())}") from None


def prices(args: argparse.Namespace, settings: Settings) -> Prices:
    """Return the prices that a command was told to take."""
    found = Prices(settings.region)
    if args.spot_prices is not None:
        found = replace(found, spot=files.read("--spot-prices", args.spot_prices, _A_HISTORY, spot_history))
    if args.account:
        told = account.spot_prices(_ec2(settings.region), _types(settings), datetime.now(UTC))
        found = replace(found, spot=told)
    if args.price_list:
        client = boto3.client("pricing", region_name=price_list.REGION)
        on_demand, since = price_list.read(client, [*_types(settings), *_of_nodes(settings)], settings.region)
        now = datetime.now(UTC).date()
        found = replace(
            found, on_demand=on_demand, read=f"the AWS Price List on {now}, in force since {since}"
        )
    return found


def scores(args: argparse.Namespace, capacities: Mapping[str, Capacity], region: str) -> dict[str, int]:
    """Return EC2's spot placement scores by group, where a command was told to read the account."""
    return account.placement_scores(_ec2(region), capacities, region) if args.account else {}


def _types(settings: Settings) -> set[str]:
    return {kind for capacity in settings.capacities.values() for kind in capacity.types}


def _of_nodes(settings: Settings) -> list[str]:
    """Return the type of the nodes of a cluster's own pods, where the stack declares one."""
    cluster = settings.kubernetes
    return [cluster.own.system_type] if cluster is not None and cluster.own is not None else []


def _ec2(region: str) -> Any:
    return boto3.client("ec2", region_name=region)


def market(args: argparse.Namespace) -> Traces | None:
    """Return the recorded market that a command was given."""
    return traces.load(args.trace) if args.trace else None


def basis(args: argparse.Namespace, used: Prices, scored: Mapping[str, int]) -> words.Basis:
    """Return what a forecast rests on, in words."""
    source = "the traces that were given" if args.trace else "the fitted model, not this account's history"
    spot = f"assumed at {ASSUMED_SPOT:g} of on-demand"
    if args.spot_prices:
        spot = f"as in {args.spot_prices.name}, else {spot}"
    if args.account:
        spot = f"as in the account now, else {spot}"
    return words.Basis(source, spot, used.read + _age(used.read), scored)


def _age(read: str) -> str:
    """Return how old a list of a month is."""
    year, _, month = read.rpartition(" ")[2].partition("-")
    if not (year.isdigit() and month.isdigit()):
        return ""
    now = datetime.now(UTC)
    months = 12 * (now.year - int(year)) + now.month - int(month)
    return f" ({months} months old)" if months != 1 else " (1 month old)"


@contextmanager
def bar(what: str) -> Iterator[running.Answered]:
    """Show how far it is, on standard error."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
