"""Maximum cost of a run in US dollars, from the dated list prices of ``infra/catalogue/price_tables.py``.

Prices that no table has are below, of us-east-1, read in November 2026 in public copies of the pages "Amazon
EC2 On-Demand Pricing" (t3.nano) and "AWS Fault Injection Service Pricing". That of a broker is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.preflight import prices
from infra.catalogue import price_tables

INSTANCE: Final = "t3.nano"
FIS_ACTION: Final = "fis-action-minute"
BROKER: Final = "mq.m7g.medium"
NOT_IN_TABLES: Final[Mapping[str, float]] = {
    INSTANCE: 0.0052,
    FIS_ACTION: 0.10,
    # Assumed: above the price of larger types (mq.m5.large: $0.29 an hour, "Amazon MQ pricing"; known).
    BROKER: 0.50,
}
NOT_COUNTED: Final = (
    "requests (SQS, DynamoDB, S3, Lambda, Parameter Store: less than $0.05 together, which is added)",
    "data transfer",
    "logs and metrics",
    "taxes",
    "free tier and credits, which lower the bill",
    "what a crash leaves until --clean-up-only",
)
_ROOT_GIB: Final = 8
_HOURS: Final = 0.5
"""Maximum lifetime of a test's instance: it is deleted right after its test, whose waits are bounded."""
_REST: Final = 0.05
_REGIONS: Final = 2.0
"""The most expensive region costs at most twice as much as us-east-1 (*known*)."""


def max_cost(assumptions: Iterable[Assumption], region: str = prices.REGION) -> float:
    """Return dollars: each test's instances for half an hour, each resource once."""
    chosen = tuple(assumptions)
    disk = _ROOT_GIB * _usd(price_tables.EBS_GP3, region) / prices.HOURS
    instance = (_usd(INSTANCE, region) + _usd(price_tables.PUBLIC_IPV4, region) + disk) * _HOURS
    resources = {resource.name: resource for assumption in chosen for resource in assumption.resources}
    return (
        _REST
        + sum(assumption.instances for assumption in chosen) * instance
        + sum(
            units * _usd(name, region)
            for resource in resources.values()
            for name, units in resource.units.items()
        )
    )


def sources(assumptions: Iterable[Assumption], region: str = prices.REGION) -> Iterator[str]:
    """Yield for each price its name, amount, region and date."""
    names = {price_tables.EBS_GP3, price_tables.PUBLIC_IPV4, INSTANCE}
    names |= {n for assumption in assumptions for resource in assumption.resources for n in resource.units}
    for name in sorted(names):
        listed = None if name in NOT_IN_TABLES else _listed(name, region)
        where = f"{listed.region}, {listed.date}" if listed else f"{prices.REGION}, {prices.READ}, no table"
        yield f"{name} ${_usd(name, region):g} ({where})"


def _listed(name: str, region: str) -> price_tables.ListPrice | None:
    return prices.node_hour(name, region) or prices.of(name, region)


def _usd(name: str, region: str) -> float:
    """Return a price in the region; without one, twice that of us-east-1."""
    listed = None if name in NOT_IN_TABLES else _listed(name, region)
    usd = NOT_IN_TABLES[name] if listed is None else listed.usd
    priced_region = prices.REGION if listed is None else listed.region
    return usd if priced_region == region else usd * _REGIONS
