"""What GPU instances cost on-demand: Linux, shared tenancy, US dollars an hour.

Source: the page "Amazon EC2 On-Demand Pricing" as public copies have it, read in November 2026, where two of
them agree. A type that is not named here has no price, and the controller reckons with a typical one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

READ: Final = "2026-11"
_REGIONS: Final = ("us-east-1", "us-east-2", "us-west-2")
"""These have the same prices; others ask more."""


def _of(family: str, text: str) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in text.split())
    return {f"{family}.{size}": float(price) for size, _, price in pairs}


_PRICES: Final = {
    **_of("p3", "2xlarge=3.06 8xlarge=12.24 16xlarge=24.48"),
    **_of("p4d", "24xlarge=21.957642"),
    **_of("p4de", "24xlarge=27.44705"),
    **_of("p5", "48xlarge=55.04"),
    **_of("p5en", "48xlarge=63.296"),
    **_of("g4dn", "xlarge=0.526 2xlarge=0.752 4xlarge=1.204 8xlarge=2.176 12xlarge=3.912 16xlarge=4.352"),
    **_of("g4dn", "metal=7.824"),
    **_of("g5", "xlarge=1.006 2xlarge=1.212 4xlarge=1.624 8xlarge=2.448 12xlarge=5.672 16xlarge=4.096"),
    **_of("g5", "24xlarge=8.144 48xlarge=16.288"),
    **_of("g6", "xlarge=0.8048 2xlarge=0.9776 4xlarge=1.3232 8xlarge=2.0144 12xlarge=4.6016"),
    **_of("g6", "16xlarge=3.3968 24xlarge=6.6752 48xlarge=13.3504"),
    **_of("g6e", "xlarge=1.861 2xlarge=2.24208 4xlarge=3.00424 8xlarge=4.52856 12xlarge=10.49264"),
    **_of("g6e", "16xlarge=7.57719 24xlarge=15.06559 48xlarge=30.13118"),
}


def price(instance_type: str, region: str) -> float | None:
    """Return what an instance of a type costs on-demand; None where nobody knows."""
    return _PRICES.get(instance_type) if region in _REGIONS else None


def in_place_of(
    types: Sequence[str],
    region: str,
    weights: Mapping[str, int],
    *,
    in_order: bool,
    listed: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return what on-demand in the place of one instance of each type costs; nothing where nobody knows.

    An instance stands for so many others as its type has in ``weights``, 1 where it is not named. With
    ``in_order`` the fallback buys the first type, else the cheapest (allocation strategies ``prioritized``
    and ``lowest-price``; EC2 Auto Scaling guide, "Allocation strategies"). ``listed`` are prices of the
    region that were read elsewhere, in place of those here.
    """
    known = listed if listed is not None else (_PRICES if region in _REGIONS else {})
    each = {name: known[name] / weights.get(name, 1) for name in types if name in known}
    if not each or (in_order and types[0] not in each):
        return {}
    bought = each[types[0]] if in_order else min(each.values())
    return {name: bought * weights.get(name, 1) for name in types}
