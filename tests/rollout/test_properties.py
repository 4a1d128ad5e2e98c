"""Invariants of rollouts: no restart leaves too few serving workers, for any faults and interruptions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.group.replacement_requests import MAX_REQUESTS
from contracts.group.rollout_request import RolloutRequest, dump, parse
from tests.rollout.simulated_service import BAD, NEW, OLD, SimulatedService, churn, release

THIRD = release("third")
FAULTS = st.sampled_from(("well", "well", *BAD))


@given(
    target=st.integers(1, 12),
    room=st.integers(0, 4),
    faults=st.fixed_dictionaries({NEW.version: FAULTS, THIRD.version: FAULTS}),
    releases=st.lists(st.sampled_from((OLD, NEW, THIRD)), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    hourly=st.sampled_from((0.0, 0.1, 0.5)),
)
def test_a_serving_host_is_restarted_only_if_nine_tenths_serve_without_it(
    target: int, room: int, faults: dict[str, str], releases: list[object], seed: int, hourly: float
) -> None:
    service = SimulatedService(target, target + room, faults=faults)  # type: ignore[arg-type]
    interrupt = churn(service, seed, hourly)
    for desired in releases:
        service.desired = desired  # type: ignore[assignment]
        for _ in range(20):
            interrupt()
            service.run(1)
    assert service.violations == []
    rollbacks = [key for key in service.messages if key.startswith("roll-back")]
    assert len(rollbacks) <= len(releases)
    assert service.row.stable.version in {OLD.version, NEW.version, THIRD.version}
    if faults[NEW.version] == "never ready":
        assert service.row.stable != NEW


@given(st.integers(0, 10**10), st.integers(0, 99), st.lists(st.text(max_size=19), max_size=MAX_REQUESTS))
def test_the_request_to_the_controller_survives_as_text(at: int, surge: int, restarting: list[str]) -> None:
    request = RolloutRequest(at, surge, tuple(restarting))
    assert parse(dump(request)) == request
    assert parse(dump(None)) is None
