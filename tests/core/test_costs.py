"""What a group costs an hour: each instance as it is paid, against on-demand in its place."""

from __future__ import annotations

import pytest

from lambdas.core.model import Group, GroupRole, Instance, Observation, Pool, PurchaseOption
from lambdas.core.money.costs import HourlyCost, hourly_cost

PRICES = {"g5.xlarge": 1.0, "g5.2xlarge": 1.5}
HERE = Pool("g5.xlarge", "us-west-2a")
LARGE = Pool("g5.2xlarge", "us-west-2b")


def seen(*instances: tuple[Pool, PurchaseOption], **spot_prices: float) -> Observation:
    return Observation(
        Group("ocr", target=2, maximum=4),
        2,
        0,
        tuple(
            Instance(f"i-{number}", pool, market, GroupRole.PRIMARY, 0.0)
            for number, (pool, market) in enumerate(instances)
        ),
        spot_prices={str(HERE): 0.25, str(LARGE): 0.4, **spot_prices},
    )


def test_spot_is_paid_at_its_price_and_on_demand_in_full() -> None:
    found = hourly_cost(
        seen((HERE, PurchaseOption.SPOT), (LARGE, PurchaseOption.SPOT), (HERE, PurchaseOption.ON_DEMAND)),
        PRICES,
    )
    assert found == HourlyCost(paid=pytest.approx(0.25 + 0.6 + 1.0), on_demand=pytest.approx(3.5))


def test_nothing_costs_nothing() -> None:
    assert hourly_cost(seen(), {}) == HourlyCost(0.0, 0.0)


@pytest.mark.parametrize(
    "instance",
    [
        (Pool("p5.48xlarge", "us-west-2a"), PurchaseOption.ON_DEMAND),
        (Pool("g5.xlarge", "us-west-2c"), PurchaseOption.SPOT),
    ],
)
def test_one_unknown_price_makes_the_cost_unknown(instance: tuple[Pool, PurchaseOption]) -> None:
    assert hourly_cost(seen((HERE, PurchaseOption.SPOT), instance), PRICES) is None
