"""Inputs of a forecast as command-line options: stack file, market and prices."""

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
from gpu_spot.forecast import account, price_list, running, text
from gpu_spot.forecast.prices import ASSUMED_SPOT, Prices, spot_history
from gpu_spot.forecast.replayed import Traces
from infra.schema import Capacity, Settings
from infra.settings import SettingsError, load_settings
from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig
from pulumi_declared.stackfile import load as load_stack

INVALID_INPUT: Final = 2
"""Exit status for invalid input."""
_PREFIX: Final = "Pulumi."
_STACK_FILE: Final = "a stack file such as Pulumi.dev.yaml"
_PRICE_HISTORY: Final = "the JSON of `aws ec2 describe-spot-price-history`"


def add_market_options(parser: argparse.ArgumentParser) -> None:
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
        help="read current Spot prices and placement scores with your AWS credentials, which require "
        "ec2:DescribeSpotPriceHistory and ec2:GetSpotPlacementScores (default: Spot at "
        f"{ASSUMED_SPOT:g} of the On-Demand price, no scores)",
    )
    parser.add_argument(
        "--price-list",
        action="store_true",
        help="read current On-Demand prices from the AWS Price List, which requires pricing:GetProducts",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of replay processes (default: one per CPU core)",
    )


def run(work: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Return the exit status of ``work``. Invalid input is reported in one line."""
    try:
        return work(args)
    except (UserError, SettingsError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return INVALID_INPUT


def read(option: str, file: Path) -> tuple[StackConfig, Settings]:
    """Return a stack file's configuration and settings; the file may be outside the project."""
    name = file.name.removeprefix(_PREFIX).partition(".")[0] if file.name.startswith(_PREFIX) else "forecast"
    files.read(option, file, _STACK_FILE, str)
    try:
        config = load_stack(project.find(), name, file=file.resolve())
    except UserError as error:
        raise ValueError(f"{option} is {file} ({error}), allowed: {_STACK_FILE}") from None
    try:
        return config, load_settings(config.values)
    except SettingsError as error:
        raise ValueError(f"{option} is {file}: {'; '.join(str(error).splitlines())}") from None


def prices(args: argparse.Namespace, settings: Settings) -> Prices:
    """Return the prices that the options select."""
    selected = Prices(settings.region)
    if args.spot_prices is not None:
        selected = replace(
            selected, spot=files.read("--spot-prices", args.spot_prices, _PRICE_HISTORY, spot_history)
        )
    if args.account:
        spot = account.spot_prices(_ec2(settings.region), _types(settings), datetime.now(UTC))
        selected = replace(selected, spot=spot)
    if args.price_list:
        client = boto3.client("pricing", region_name=price_list.REGION)
        on_demand, since = price_list.read(
            client, [*_types(settings), *_system_node_types(settings)], settings.region
        )
        now = datetime.now(UTC).date()
        selected = replace(
            selected, on_demand=on_demand, source=f"AWS Price List of {now}, effective {since}"
        )
    return selected


def scores(args: argparse.Namespace, capacities: Mapping[str, Capacity], region: str) -> dict[str, int]:
    """Return EC2's Spot placement scores by group; empty without ``--account``."""
    return account.placement_scores(_ec2(region), capacities, region) if args.account else {}


def _types(settings: Settings) -> set[str]:
    return {kind for capacity in settings.capacities.values() for kind in capacity.types}


def _system_node_types(settings: Settings) -> list[str]:
    """Return the type of the system nodes of a created cluster, if any."""
    cluster = settings.kubernetes
    return [cluster.create.system_instance_type] if cluster is not None and cluster.create is not None else []


def _ec2(region: str) -> Any:
    return boto3.client("ec2", region_name=region)


def market(args: argparse.Namespace) -> Traces | None:
    """Return the recorded market of ``--trace``, if any."""
    return traces.load(args.trace) if args.trace else None


def basis(args: argparse.Namespace, used: Prices, scored: Mapping[str, int]) -> text.Basis:
    """Return the sources of a forecast."""
    source = "recorded traces" if args.trace else "fitted model, not the history of this account"
    spot = f"assumed at {ASSUMED_SPOT:g} of On-Demand"
    if args.spot_prices:
        spot = f"from {args.spot_prices.name}, otherwise {spot}"
    if args.account:
        spot = f"current prices of the account, otherwise {spot}"
    return text.Basis(source, spot, used.source + _age_note(used.source), scored)


def _age_note(read: str) -> str:
    """Return the age of a price list that is dated by month."""
    year, _, month = read.rpartition(" ")[2].partition("-")
    if not (year.isdigit() and month.isdigit()):
        return ""
    now = datetime.now(UTC)
    months = 12 * (now.year - int(year)) + now.month - int(month)
    return f" ({months} months old)" if months != 1 else " (1 month old)"


@contextmanager
def progress_bar(description: str) -> Iterator[running.ProgressCallback]:
    """Show a progress bar on standard error."""
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
