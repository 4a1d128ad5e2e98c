"""Read list prices of all regions from the AWS Price List (``make prices``).

They are those of On-Demand instances and of the bill's other lines, ``price_tables.ITEMS``. What is read is
written next to the stack files; a price that the Price List does not have leaves the older one in use. It
requires ``pricing:GetProducts``; with ``ec2:DescribeSpotPriceHistory`` current Spot prices are read, too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import boto3
from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.commands import files
from gpu_spot.forecast import account
from gpu_spot.progress import progress
from infra.catalogue import accelerators, price_tables
from infra.catalogue.price_tables import PriceTable

REGION: Final = "us-east-1"
"""Region of the API, which has the prices of all regions of AWS and of GovCloud, not those of China.

Source: botocore's endpoints: us-east-1, eu-central-1 and ap-south-1; none in GovCloud, whose prices need
credentials of a commercial account.
"""
SOURCE: Final = "AWS Price List"
_INSTANCES: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
"""Select one product of a type in a region; reservations have another ``capacitystatus``."""
_BROKERS: Final = {
    "productFamily": "Broker Instances",
    "brokerEngine": "RabbitMQ",
    "deploymentOption": "Single-AZ",
}
"""Select the brokers of one instance, whose price is that of each instance of a cluster, too."""
_USAGE_TYPES: Final = {
    price_tables.EBS_GP3: ("AmazonEC2", "EBS:VolumeUsage.gp3"),
    price_tables.EBS_GP3_THROUGHPUT: ("AmazonEC2", "EBS:VolumeP-Throughput.gp3"),
    price_tables.NAT_GATEWAY: ("AmazonEC2", "NatGateway-Hours"),
    price_tables.PUBLIC_IPV4: ("AmazonVPC", "PublicIPv4:InUseAddress"),
    price_tables.INTERFACE_ENDPOINT: ("AmazonVPC", "VpcEndpoint-Hours"),
    price_tables.EFS_STANDARD: ("AmazonEFS", "TimedStorage-ByteHrs"),
    price_tables.EFS_WRITE: ("AmazonEFS", "ETDataAccess-Bytes"),
    price_tables.LOAD_BALANCER: ("AWSELB", "LoadBalancerUsage"),
    price_tables.EKS_CLUSTER: ("AmazonEKS", "AmazonEKS-Hours:perCluster"),
    price_tables.EKS_EXTENDED: ("AmazonEKS", "AmazonEKS-Hours:extendedSupport"),
}
"""Service code and usage type, which in most regions has a prefix such as ``EUN1-``."""
_ATTRIBUTES: Final[Mapping[str, tuple[str, str]]] = {
    price_tables.EFS_WRITE: ("accessType", "Write"),
    price_tables.LOAD_BALANCER: ("operation", "LoadBalancing:Application"),
}
"""Attribute, and its value, of products whose usage type is also that of others: of reads, and of the other
kinds of load balancers."""
_UNITS: Final = {
    "hrs": 1.0,
    "hours": 1.0,
    "gb": 1.0,
    "gb-mo": 1.0,
    "gb-month": 1.0,
    "mibps-mo": 1.0,
    "gibps-mo": 1 / 1024,
}
"""Factor from the price per unit to ``price_tables.ITEMS``; gp3 throughput is listed by the GiB/s."""
_REGION_CODE: Final = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")
_BROKER_TYPE: Final = re.compile(r"mq\.[a-z0-9]+\.[a-z0-9]+$")


@dataclass(frozen=True, slots=True)
class Reading:
    """Prices in US dollars by region and name, and prices that were rejected, each with the reason."""

    prices: dict[str, dict[str, float]] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)

    def tables(self, date: str) -> list[PriceTable]:
        """Return a table for each region, read on a date (``YYYY-MM-DD``)."""
        return [PriceTable(region, date, SOURCE, usd) for region, usd in sorted(self.prices.items())]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of one service's products.

    ``name_of`` returns the name that a product has in tables; None if it is not wanted.
    """

    service: str
    filters: tuple[tuple[str, str, str], ...]
    name_of: Callable[[Mapping[str, str]], str | None]


def instance_types() -> tuple[str, ...]:
    """Return the EC2 types to read: the catalogue's, and those of system nodes that tables have."""
    names = {
        name
        for table in price_tables.at_hand()
        for name in table.usd
        if name not in price_tables.ITEMS and not name.startswith(("mq.", "spot"))
    }
    return (*accelerators.CATALOGUE, *sorted(names - accelerators.CATALOGUE.keys()))


def read(
    client: BaseClient, types: Iterable[str], on_progress: Callable[[int, int], None] | None = None
) -> Reading:
    """Return the prices of instance types, brokers and ``price_tables.ITEMS`` in all regions.

    ``on_progress`` receives the number of completed queries and the total.

    Two different prices of one thing in a region, and unknown units, are rejected. Raises ``ValueError`` if
    the Price List cannot be read.
    """
    queries = [*_queries(types)]
    candidates: dict[tuple[str, str], set[float]] = {}
    reading = Reading()
    for number, query in enumerate(queries, 1):
        for product in _products(client, query):
            attributes = product["product"]["attributes"]
            region, name = str(attributes.get("regionCode", "")), query.name_of(attributes)
            # Local Zones and Wavelength Zones have prices of their own.
            is_region = attributes.get("locationType", "AWS Region") == "AWS Region"
            if name is None or not is_region or not _REGION_CODE.fullmatch(region):
                continue
            for unit, usd in _offers(product, name):
                if unit.lower() not in _UNITS:
                    reading.rejected.append(f"{name} in {region}: unknown unit {unit!r}")
                elif usd > 0:
                    candidates.setdefault((region, name), set()).add(round(usd * _UNITS[unit.lower()], 8))
        if on_progress is not None:
            on_progress(number, len(queries))
    for (region, name), prices in sorted(candidates.items()):
        if len(prices) > 1:
            listed = ", ".join(f"{price:g}" for price in sorted(prices))
            reading.rejected.append(f"{name} in {region}: {len(prices)} prices ({listed}), expected one")
        else:
            [reading.prices.setdefault(region, {})[name]] = prices
    return reading


def _queries(types: Iterable[str]) -> Iterator[_Query]:
    selected = tuple(("TERM_MATCH", key, value) for key, value in _INSTANCES.items())
    for kind in dict.fromkeys(types):
        by_type = ("TERM_MATCH", "instanceType", kind)
        yield _Query("AmazonEC2", (by_type, *selected), lambda _, kind=kind: kind)  # type: ignore[misc]
    for item, (service, usage) in _USAGE_TYPES.items():
        exact = re.compile(rf"([A-Z0-9]+-)?{re.escape(usage)}")
        yield _Query(
            service,
            (("CONTAINS", "usagetype", usage),),
            lambda product, item=item, exact=exact: (  # type: ignore[misc]
                item if exact.fullmatch(product.get("usagetype", "")) and _fits(product, item) else None
            ),
        )
    brokers = tuple(("TERM_MATCH", key, value) for key, value in _BROKERS.items())
    yield _Query("AmazonMQ", brokers, _broker_type)


def _fits(product: Mapping[str, str], item: str) -> bool:
    """Return whether a product has the attribute that tells the item from others of its usage type."""
    name, value = _ATTRIBUTES.get(item, ("", ""))
    return product.get(name, "") == value


def _broker_type(product: Mapping[str, str]) -> str | None:
    match = _BROKER_TYPE.search(product.get("usagetype", ""))
    return None if match is None else match[0]


def _products(client: BaseClient, query: _Query) -> Iterator[Any]:
    pages = client.get_paginator("get_products").paginate(
        ServiceCode=query.service,
        Filters=[{"Type": type_, "Field": name, "Value": value} for type_, name, value in query.filters],
    )
    try:
        for page in pages:
            for text in page["PriceList"]:
                yield json.loads(text) if isinstance(text, str) else text
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"cannot read the Price List: {error}") from None


def _offers(product: Any, name: str) -> list[tuple[str, float]]:
    """Return unit and On-Demand price in US dollars of a product's first tier."""
    try:
        return [
            (str(dimension["unit"]), float(dimension["pricePerUnit"]["USD"]))
            for term in product["terms"].get("OnDemand", {}).values()
            for dimension in term["priceDimensions"].values()
            if float(dimension.get("beginRange", 0)) == 0
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"cannot parse the Price List's product for {name}: {error!r}") from None


def add_spot(reading: Reading, client_of: Callable[[str], Any], now: datetime) -> None:
    """Add the current Spot prices: of each type with an On-Demand price the lowest and highest zone's.

    A region that cannot be read, such as one that the account has not enabled, is rejected with its error.
    """
    for region, usd in reading.prices.items():
        kinds = [kind for kind in usd if kind in accelerators.CATALOGUE]
        try:
            by_pool = account.spot_prices(client_of(region), kinds, now) if kinds else {}
        except ValueError as error:
            reading.rejected.append(f"Spot prices in {region}: {error}")
            continue
        for kind in kinds:
            if zones := [price for pool, price in by_pool.items() if pool.instance_type == kind]:
                usd[f"{price_tables.SPOT_LOW}{kind}"] = min(zones)
                usd[f"{price_tables.SPOT_HIGH}{kind}"] = max(zones)


def main() -> int:
    """Write the current prices; return 1 after one line if they cannot be read."""
    file = price_tables.PROJECT_FILE
    try:
        files.check_writable("the file of prices", file)
        with progress("reading prices") as on_progress:
            reading = read(boto3.client("pricing", region_name=REGION), instance_types(), on_progress)
        if not reading.prices:
            raise ValueError(f"the Price List has no price, {file} is unchanged")
        add_spot(reading, lambda region: boto3.client("ec2", region_name=region), datetime.now(UTC))
        files.write(
            "the file of prices", file, price_tables.dumps(reading.tables(f"{datetime.now(UTC):%Y-%m-%d}"))
        )
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    count = sum(len(usd) for usd in reading.prices.values())
    sys.stderr.write(f"{count} prices of {len(reading.prices)} regions written to {file}\n")
    sys.stderr.writelines(f"rejected: {reason}\n" for reason in reading.rejected)
    return 0


if __name__ == "__main__":
    sys.exit(main())
