"""``gpu-spot prices``: list prices at hand by region, and their update from the AWS Price List."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import boto3
from rich.console import Console
from rich.table import Table

from gpu_spot.commands import files
from gpu_spot.commands.market import forecast_inputs
from gpu_spot.commands.market.forecast_inputs import INVALID_INPUT, progress_bar
from gpu_spot.forecast import price_list
from infra.catalogue import accelerators, price_tables
from infra.catalogue.price_tables import ITEMS, ListPrice

_PARTITIONS: Final = ("aws", "aws-us-gov")
"""Partitions of the Price List that bill in US dollars."""
_ALL_REGIONS: Final = "all regions"


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "prices",
        help="show the list prices at hand by region, or read them from the AWS Price List",
        epilog=f"Exit status: 0, {INVALID_INPUT} for invalid input or if the Price List cannot be read.",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help=f"read the prices of all regions and write {price_tables.PROJECT_FILE.name} next to the stack "
        "files; requires pricing:GetProducts",
    )
    parser.add_argument(
        "--region", metavar="REGION", help=f"show each price of a region (default: {_ALL_REGIONS})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=partial(forecast_inputs.run, _run))


def _run(args: argparse.Namespace) -> int:
    regions = _regions()
    if args.region is not None and args.region not in regions:
        raise ValueError(f"--region is {args.region}, allowed: {', '.join(regions)}")
    if args.update:
        _update()
    if args.json:
        shown = regions if args.region is None else [args.region]
        sys.stdout.write(json.dumps({"regions": {name: _document(name) for name in shown}}, indent=1) + "\n")
    elif args.region is None:
        _print_regions(regions)
    else:
        _print_region(args.region)
    return 0


def _regions() -> list[str]:
    """Return the regions of AWS and GovCloud, with those of tables that the SDK does not know."""
    session = boto3.Session()
    regions = {name for part in _PARTITIONS for name in session.get_available_regions("ec2", part)}
    return sorted(regions | {table.region for table in price_tables.at_hand()})


def _update() -> None:
    """Write the current prices; a price that the Price List does not have leaves the older one in use."""
    file = price_tables.PROJECT_FILE
    files.check_writable("--update", file)
    client = boto3.client("pricing", region_name=price_list.REGION)
    with progress_bar("read") as progress:
        reading = price_list.read(client, price_list.instance_types(), progress)
    if not reading.prices:
        raise ValueError(f"the Price List has no price, {file} is unchanged")
    files.write("--update", file, price_tables.dumps(reading.tables(f"{datetime.now(UTC):%Y-%m-%d}")))
    price_tables.forget()
    count = sum(len(usd) for usd in reading.prices.values())
    sys.stderr.write(f"{count} prices of {len(reading.prices)} regions written to {file}\n")
    sys.stderr.writelines(f"gpu-spot: rejected: {reason}\n" for reason in reading.rejected)


def _at_hand(region: str) -> dict[str, ListPrice]:
    names = dict.fromkeys(
        (*accelerators.CATALOGUE, *ITEMS, *(name for table in price_tables.at_hand() for name in table.usd))
    )
    return {name: price for name in names if (price := price_tables.find(name, region)) is not None}


def _missing(region: str) -> list[str]:
    return [name for name in (*accelerators.CATALOGUE, *ITEMS) if price_tables.find(name, region) is None]


def _document(region: str) -> dict[str, Any]:
    prices = {
        name: {"usd": price.usd, "date": price.date, "source": price.source}
        for name, price in _at_hand(region).items()
    }
    return {"prices": prices, "missing": _missing(region)}


def _print_regions(regions: Sequence[str]) -> None:
    table = Table("region", "GPU and Trainium types", "other lines", "brokers", "dates", box=None)
    unpriced, sources = [], set[str]()
    for region in regions:
        prices = _at_hand(region)
        if not prices:
            unpriced.append(region)
            continue
        kinds = sum(name in accelerators.CATALOGUE for name in prices)
        items = sum(name in ITEMS for name in prices)
        dates = sorted({price.date for price in prices.values()})
        sources |= {price.source for price in prices.values()}
        table.add_row(
            region,
            f"{kinds} of {len(accelerators.CATALOGUE)}",
            f"{items} of {len(ITEMS)}",
            str(sum(name.startswith("mq.") for name in prices)),
            dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        )
    console = _console()
    console.print(table)
    if unpriced:
        console.print(f"No price: {', '.join(unpriced)}.", highlight=False)
    console.print(f"Sources: {'; '.join(sorted(sources))}.", highlight=False)
    console.print(
        "A line without a price of its region has that of us-east-1 and says so; instances have none. "
        f"{price_tables.UPDATE_COMMAND} reads all of them; --region REGION shows each price.",
        highlight=False,
    )


def _print_region(region: str) -> None:
    table = Table("price", "US dollars", "date", "source", box=None)
    for name, price in _at_hand(region).items():
        table.add_row(
            f"{name}: {ITEMS[name]}" if name in ITEMS else name, f"{price.usd:g}", price.date, price.source
        )
    console = _console()
    console.print(table)
    console.print(f"No price: {', '.join(_missing(region)) or 'nothing'}.", highlight=False)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)
