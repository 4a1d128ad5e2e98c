"""Any state that the controller may find, and any policy that a stack may choose."""

from __future__ import annotations

from hypothesis import strategies as st

from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.on_premises import OnPremisesOffset
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.capacity.replacements import filter_requests
from lambdas.core.deadline.record import JobRecord
from lambdas.core.model import Group, GroupRole, Instance, Observation, Pool, PurchaseOption, slots
from tests.core.build import NOW, refusal
from tests.core.build import group as make_group

WITHHOLDING = ("VcpuLimitExceeded", "UnauthorizedOperation", "The security group 'sg-1' does not exist.")
"""Launch failures that On-Demand must not replace."""
REFUSALS = (
    "UnfulfillableCapacity - Unable to fulfill capacity",
    "some message that AWS has not documented",
    "MaxSpotInstanceCountExceeded",
    *WITHHOLDING,
)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    target = draw(st.integers(0, 8))
    return make_group(
        "inference",
        target=target,
        maximum=target + draw(st.integers(1, 8)),
        base=draw(st.integers(0, target)),
        drain_seconds=draw(st.sampled_from([0.0, 30.0, 150.0])),
        fallback=draw(st.booleans()) or draw(st.booleans()),
        break_before_make=draw(st.booleans()),
        deadline=draw(st.sampled_from([0.0, NOW - 60, NOW + 7200, NOW + 36_000])),
    )


weights = st.sampled_from([(1,), (1, 4), (2, 4), (1, 2, 4, 8)])


@st.composite
def instances(draw: st.DrawFn, side: GroupRole, wanted: int, sizes: tuple[int, ...]) -> list[Instance]:
    """Return members as AWS launches them: until ``wanted`` slots are reached."""
    made: list[Instance] = []
    while slots(made) < wanted:
        number = len(made)
        spot = side is GroupRole.PRIMARY and draw(st.integers(0, 3)) > 0
        age = draw(st.integers(0, 7200))
        made.append(
            Instance(
                id=f"{side}-{number}",
                pool=Pool("g5.xlarge", draw(st.sampled_from("abc"))),
                purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
                group_role=side,
                launched_at=NOW - age,
                ready_since=NOW - age // 2 if draw(st.booleans()) else None,
                deadline=NOW + draw(st.integers(-5, 120)) if spot and draw(st.booleans()) else None,
                is_standby=draw(st.booleans()),
                slots=draw(st.sampled_from(sizes)),
            )
        )
    return made


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    group, sizes = draw(groups()), draw(weights)
    members = draw(instances(GroupRole.PRIMARY, draw(st.integers(0, group.maximum)), sizes))
    room = max(0, group.maximum - slots(members)) if group.fallback else 0
    fallback = draw(st.integers(0, room))
    unfilled = draw(st.integers(0, 3)) if group.fallback else 0
    # AWS ends what stands above the desired capacity, except that successors of the doomed come early, and
    # that the last launch may have brought more than was missing.
    everybody = (*members, *draw(instances(GroupRole.FALLBACK, fallback, sizes)))
    verdicts = st.sampled_from(["", "", "xid", "stuck"])
    progress = {i.id: draw(verdicts) for i in everybody}
    requests = [
        ReplacementRequest(i, int(NOW) - n, why) for n, (i, why) in enumerate(progress.items()) if why
    ]
    staying = slots(member for member in members if member.deadline is None)
    beyond = draw(st.integers(0, min(staying, max(sizes) - 1)))
    return Observation(
        group,
        primary_desired=max(staying - beyond, draw(st.integers(0, max(group.target, group.config.base)))),
        fallback_desired=fallback + min(unfilled, room - fallback),
        instances=everybody,
        replacement_requests=filter_requests(requests, group, everybody, NOW)[0],
        on_premises_slots=draw(st.sampled_from([None, 0, 0, 1, 3])),
        launch_failures=tuple(
            refusal(draw(st.sampled_from(REFUSALS)), side)
            for side in GroupRole
            if draw(st.integers(0, 3)) == 0
        ),
    )


policies = st.sampled_from([*(build(name) for name in NAMES), ByDeadline()])
measured = st.builds(
    JobRecord,
    step=st.integers(0, 1000),
    steps=st.just(1000),
    reported_at=st.just(NOW - 30),
    rate=st.sampled_from([0.0, 0.01, 1.0]),
    best_rate=st.just(1.0),
)
memories = st.builds(
    Memory,
    job=measured,
    on_premises_offset=st.just(OnPremisesOffset())
    | st.just(OnPremisesOffset(2))
    | st.just(OnPremisesOffset(1, 3, NOW - 3600)),
    boots=st.just({PurchaseOption.ON_DEMAND: (60.0, 75.0)})
    | st.just({PurchaseOption.SPOT: (180.0,)})
    | st.just({}),
    at_risk=st.dictionaries(
        st.sampled_from([f"{side}-{number}" for side in GroupRole for number in range(4)]), st.just(NOW)
    ),
)
