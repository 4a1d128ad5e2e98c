"""On-demand that is paid for anyway is held first, whatever the policy, and so much less spot is bought."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.model import GroupRole, Instance, Observation
from market.replay.engine import Replay
from market.replay.fleet import LightFleet
from market.replay.groups import SPOT_REFUSAL, GroupShape
from market.supply import placement
from tests.core.build import NOW, carried_out, group, observe, on_demand, refusal, released, spot
from tests.market.markets import market, trace

RESERVED = group(reserved=2)
SPOT = [spot(f"s-{n}") for n in range(4)]
PAID = [on_demand(f"o-{n}", age=7200) for n in range(2)]


@pytest.fixture(params=NAMES)
def policy(request: pytest.FixtureRequest) -> Policy:
    return build(request.param)


def moves(policy: Policy, seen: Observation) -> dict[GroupRole, int]:
    """Return the desired capacities once AWS has done what is decided."""
    after = carried_out(seen, decide(seen, policy, Memory(), NOW))
    return {side: after.desired_capacity(side) for side in GroupRole}


def leaving(policy: Policy, seen: Observation) -> set[str]:
    return {*released(decide(seen, policy, Memory(), NOW).actions)}


def test_at_the_start_spot_stands_in_until_it_is_there(policy: Policy) -> None:
    found = moves(policy, observe(group=RESERVED, primary_desired=0))
    assert found[GroupRole.PRIMARY] == 4
    assert found[GroupRole.FALLBACK] >= 2


def test_spot_goes_when_what_is_paid_for_serves_and_not_before(policy: Policy) -> None:
    boots = [replace(one, ready_since=None) for one in PAID]
    assert leaving(policy, observe(*SPOT, *boots, group=RESERVED)) == set()
    seen = observe(*SPOT, *PAID, group=RESERVED)
    assert len(leaving(policy, seen) & {one.id for one in SPOT}) == 2
    assert moves(policy, seen) == {GroupRole.PRIMARY: 2, GroupRole.FALLBACK: 2}


def test_what_is_beyond_is_the_policys_as_ever(policy: Policy) -> None:
    seen = observe(SPOT[0], *PAID, group=RESERVED, primary_desired=2, refusals=(refusal(SPOT_REFUSAL),))
    found = moves(policy, seen)
    assert found == {GroupRole.PRIMARY: 2, GroupRole.FALLBACK: 3}


def test_a_full_group_requests_nothing_more(policy: Policy) -> None:
    seen = observe(*SPOT[:2], *PAID, group=RESERVED, primary_desired=2)
    assert decide(seen, policy, Memory(), NOW).actions == ()


def test_what_aws_takes_back_is_covered_like_any_other(policy: Policy) -> None:
    interrupted: Instance = replace(PAID[0], deadline=NOW + 60)
    seen = observe(*SPOT[:2], interrupted, PAID[1], group=RESERVED, primary_desired=2)
    found = moves(policy, seen)
    assert found[GroupRole.PRIMARY] == 3
    assert found[GroupRole.FALLBACK] >= 2


def test_an_instance_of_several_slots_takes_as_many_of_it(policy: Policy) -> None:
    big, bigger = (replace(PAID[0], id=f"o-{n}", slots=n) for n in (2, 4))
    seen = observe(*SPOT[:2], big, group=RESERVED, primary_desired=2, fallback_desired=2)
    assert decide(seen, policy, Memory(), NOW).actions == ()
    # What does not fit into the reservation is not in it.
    assert leaving(policy, observe(*SPOT, bigger, group=RESERVED, fallback_desired=4)) == set()


def test_limits_withhold_no_reservation(policy: Policy) -> None:
    limit = refusal("VcpuLimitExceeded: You have requested more vCPU capacity than your current limit")
    seen = observe(*SPOT[:2], group=RESERVED, refusals=(limit,))
    assert moves(policy, seen)[GroupRole.FALLBACK] == 2


@pytest.mark.parametrize(
    ("changes", "held"), [({"target": 1}, 1), ({"target": 0}, 0), ({"fallback": False}, 0)]
)
def test_reserved_capacity_is_limited_to_the_target_and_to_the_fallback(
    policy: Policy, changes: dict[str, int | bool], held: int
) -> None:
    seen = observe(group=group(reserved=2, **changes), primary_desired=0)
    assert moves(policy, seen)[GroupRole.FALLBACK] == held


def test_a_day_of_the_market_is_bridged_with_it(policy: Policy) -> None:
    up, down = [4] * 120, [0] * 60
    sold, rules = market(trace(*(up + down) * 8, name="us-west-2a_g5.xlarge"))
    fleet = LightFleet(group(reserved=2), policy)
    replay = Replay(sold, rules, fleet, GroupShape(placement.named(sold.names)), 4)
    spans = replay.run().spans
    late = [span for span in spans if span.tick > 60]
    assert min(span.on_demand for span in late) == 2
    assert min(span.ready for span in late) >= 2
    assert {span.spot for span in late if not span.refused} >= {2}
    assert max(span.spot for span in late) == 2
