"""Tables of AWS's list prices by region: the shipped ones and those that ``make prices`` wrote.

A table has one region, one date and one source. Of several prices for the same thing the newest counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

EBS_GP3: Final = "ebs-gp3"
EBS_GP3_THROUGHPUT: Final = "ebs-gp3-throughput"
EFS_STANDARD: Final = "efs-standard"
EFS_WRITE: Final = "efs-elastic-write"
NAT_GATEWAY: Final = "nat-gateway"
INTERFACE_ENDPOINT: Final = "interface-endpoint"
PUBLIC_IPV4: Final = "public-ipv4"
LOAD_BALANCER: Final = "application-load-balancer"
EKS_CLUSTER: Final = "eks-cluster"
EKS_EXTENDED: Final = "eks-cluster-extended-support"

ITEMS: Final[Mapping[str, str]] = {
    EBS_GP3: "a GiB of an EBS gp3 volume for a month",
    EBS_GP3_THROUGHPUT: "a MiB/s of a gp3 volume above 125 for a month",
    EFS_STANDARD: "a GiB on EFS Standard for a month",
    EFS_WRITE: "a GiB written to EFS with elastic throughput",
    NAT_GATEWAY: "an hour of a NAT gateway",
    INTERFACE_ENDPOINT: "an hour of an interface endpoint in a zone",
    PUBLIC_IPV4: "an hour of a public IPv4 address",
    LOAD_BALANCER: "an hour of an Application Load Balancer",
    EKS_CLUSTER: "an hour of an EKS control plane in standard support",
    EKS_EXTENDED: "an hour of an EKS control plane in extended support",
}
"""Prices other than those of instances. The name of an instance price is the type, for an hour: an EC2 type
(Linux, shared tenancy, On-Demand), or an Amazon MQ type such as ``mq.m7g.large`` (one RabbitMQ broker
instance). A Spot price of a type is ``spot:TYPE``, a region's mean of a month, or ``spot-low:TYPE`` and
``spot-high:TYPE``, the ends over its zones at one moment."""
SPOT_MEAN: Final = "spot:"
SPOT_LOW: Final = "spot-low:"
SPOT_HIGH: Final = "spot-high:"

SHIPPED_FILE: Final = Path(__file__).with_name("prices.json")
PROJECT_FILE: Final = Path(__file__).resolve().parents[2] / "prices.json"
"""Where ``make prices`` writes: next to the stack files of the checkout."""
UPDATE_COMMAND: Final = "make prices"
_KEYS: Final = frozenset({"region", "date", "source", "usd"})
_DATE: Final = re.compile(r"\d{4}-\d{2}(-\d{2})?")
_REGION: Final = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")
_INSTANCE: Final = re.compile(r"(mq\.|spot(-low|-high)?:)?[a-z0-9-]+\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of a region in US dollars by name, read on ``date`` (``YYYY-MM`` or ``YYYY-MM-DD``)."""

    region: str
    date: str
    source: str
    usd: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ListPrice:
    """A price in US dollars, with the region, date and source of its table."""

    usd: float
    region: str
    date: str
    source: str


def find(name: str, region: str) -> ListPrice | None:
    """Return the newest price of an instance type or item in a region; None if no table has it.

    Raises ``ValueError`` if the project's file is invalid.
    """
    return _newest().get((region, name))


def highest(name: str) -> float | None:
    """Return the highest price of an instance type or item in any region; None if no table has it.

    Raises ``ValueError`` if the project's file is invalid.
    """
    return max((listed.usd for (_, item), listed in _newest().items() if item == name), default=None)


def at_hand() -> tuple[PriceTable, ...]:
    """Return the shipped tables, then the project's. Raises ``ValueError`` if the project's are invalid."""
    return (*_read(SHIPPED_FILE), *(_read(PROJECT_FILE) if PROJECT_FILE.is_file() else ()))


@cache
def _newest() -> dict[tuple[str, str], ListPrice]:
    prices: dict[tuple[str, str], ListPrice] = {}
    # Sorting is stable: of two tables with one date the project's counts.
    for table in sorted(at_hand(), key=lambda table: table.date):
        for name, usd in table.usd.items():
            prices[table.region, name] = ListPrice(usd, table.region, table.date, table.source)
    return prices


def forget() -> None:
    """Read the files again at the next request."""
    _newest.cache_clear()


def _read(file: Path) -> tuple[PriceTable, ...]:
    try:
        return parse(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        advice = f"write it again with {UPDATE_COMMAND}"
        raise ValueError(f"{file} is not a file of prices ({error}): {advice}") from None


def parse(text: str) -> tuple[PriceTable, ...]:
    """Return the tables of a file. Raises ``ValueError`` for another form, name, date or price."""
    document = json.loads(text)
    tables = document.get("tables") if isinstance(document, dict) else None
    if not isinstance(tables, list):
        raise ValueError("no list 'tables'")
    return tuple(_table(entry) for entry in tables)


def _table(entry: Any) -> PriceTable:
    if not isinstance(entry, dict) or entry.keys() != _KEYS or not isinstance(entry["usd"], dict):
        raise ValueError(f"a table is not an object of {', '.join(sorted(_KEYS))}")
    region, date, source = (str(entry[key]) for key in ("region", "date", "source"))
    if not _REGION.fullmatch(region) or not _DATE.fullmatch(date):
        raise ValueError(
            "prices must have a region and a date such as eu-north-1 and 2026-11-24, not "
            f"{region!r} and {date!r}"
        )
    for name, usd in entry["usd"].items():
        if name not in ITEMS and not _INSTANCE.fullmatch(name):
            raise ValueError(f"{name!r} is not a price; use an instance type, or one of {', '.join(ITEMS)}")
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < 10_000:
            raise ValueError(f"the price of {name} in {region} must be a number above 0, not {usd!r}")
    return PriceTable(region, date, source, entry["usd"])


def dumps(tables: Iterable[PriceTable]) -> str:
    """Return the text of a file with these tables, one price per line."""
    entries = [
        {
            "region": table.region,
            "date": table.date,
            "source": table.source,
            "usd": dict(sorted(table.usd.items())),
        }
        for table in sorted(tables, key=lambda table: (table.region, table.date))
    ]
    return json.dumps({"tables": entries}, indent=1) + "\n"
