"""The policies that a replay can compare: those that a stack may choose, and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from lambdas.core.capacity import policies
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.model import Pool
from market.replay.groups import Allocation, GroupShape, Spread
from research.simulation.comparison.baselines import Checker2018, DynamicPlacer, OnDemand, SpotHedge, SpotOnly

FRONTIER: Final = (0.0, 1.2, 3.0, 5.0, 10.0, 20.0, 30.0, 100.0, 150.0, 200.0, 300.0, 1000.0)
"""Values of ``shortageCost`` at which ``all`` replays our policy."""
SPARES: Final = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with the group shape that it needs.

    ``warm``: it can use a warm pool; ``spares``: Spot slots that it holds above the target, for which its
    maximum has room beside a whole target of On-Demand. ``spreads``: the controller tries other zones for
    it, as for a stack's group; the baselines choose zones themselves, or do not.
    """

    name: str
    policy: Policy
    spot_percentage: int = 100
    allocation: Callable[[], Allocation] = Spread
    warm: bool = True
    spares: int = 0
    spreads: bool = False

    @property
    def default(self) -> bool:
        """Whether a stack uses this policy by default."""
        return self.name == policies.DEFAULT

    def shape(self, pools: Iterable[Pool]) -> GroupShape:
        """Return the shape of the group for this contender."""
        return GroupShape(tuple(pools), spot_percentage=self.spot_percentage, allocation=self.allocation)


BASELINES: Final = (
    Contender(OnDemand.name, OnDemand(), warm=False),
    Contender(SpotOnly.name, SpotOnly(), warm=False),
    Contender("static-mix", SpotOnly(), spot_percentage=50, warm=False),
    Contender(Checker2018.name, Checker2018()),
)
FAMILY: Final = tuple(
    Contender(
        f"{SpotHedge.name}{'-notices' if notices else ''}+{spares}",
        SpotHedge(spares, notices),
        allocation=DynamicPlacer,
        spares=spares,
    )
    for notices in (False, True)
    for spares in SPARES
)
"""SpotHedge with and without notices and spares; SkyPilot ships ``+0``: ``num_overprovision`` is None."""
_BASELINES: Final = {contender.name: contender for contender in (*BASELINES, *FAMILY)}

NAMES: Final = (*policies.NAMES, *_BASELINES)
"""Valid policy names, the policies of a stack first."""

AT_VALUE: Final = f"{ExpectedCost.name}@VALUE"
"""Format of our policy's name with a shortage cost."""


def at(shortage_cost: float) -> Contender:
    """Return our policy at a shortage cost, as ``NAME@VALUE``."""
    return Contender(f"{ExpectedCost.name}@{shortage_cost:g}", ExpectedCost(shortage_cost), spreads=True)


def everyone() -> tuple[Contender, ...]:
    """Return the baselines, the policies of a stack with their defaults, and ours along its frontier."""
    return (*BASELINES, *FAMILY, *map(_parse_contender, policies.NAMES), *map(at, FRONTIER))


def named(text: str) -> tuple[Contender, ...]:
    """Return the contenders in ``NAME[,NAME…]`` or ``all``; ``NAME@VALUE`` sets our policy's shortage cost.

    Raises ``ValueError`` that names the unknown value and the allowed ones.
    """
    if text == "all":
        return everyone()
    return tuple(_parse_contender(name.strip()) for name in text.split(","))


def _parse_contender(text: str) -> Contender:
    name, _, value = text.partition("@")
    if value or "@" in text:
        if name != ExpectedCost.name:
            raise ValueError(f"policy {text!r}: only {ExpectedCost.name} takes a value after @")
        try:
            return at(float(value))
        except ValueError:
            raise ValueError(f"policy {text!r} must have a number ≥ 0 after @, not {value!r}") from None
    if name in _BASELINES:
        return _BASELINES[name]
    if name not in policies.NAMES:
        allowed = ", ".join(("all", *NAMES, AT_VALUE))
        raise ValueError(f"policy {name!r} is unknown; use {allowed}")
    return Contender(name, policies.build(name), spreads=True)
