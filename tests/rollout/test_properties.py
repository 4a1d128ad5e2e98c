"""Whatever is rolled out, breaks or is lost: nobody starts anew without whom too few would serve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.group.replacement_requests import MOST
from contracts.group.rolling import Rolling, dump, parse
from tests.rollout.scenes import BAD, NEW, OLD, Service, churn, release

THIRD = release("third")
FAULTS = st.sampled_from(("well", "well", *BAD))


@given(
    target=st.integers(1, 12),
    room=st.integers(0, 4),
    faults=st.fixed_dictionaries({NEW.version: FAULTS, THIRD.version: FAULTS}),
    wanted=st.lists(st.sampled_from((OLD, NEW, THIRD)), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    hourly=st.sampled_from((0.0, 0.1, 0.5)),
)
def test_who_serves_is_asked_only_while_nine_tenths_serve_without_it(
    target: int, room: int, faults: dict[str, str], wanted: list[object], seed: int, hourly: float
) -> None:
    service = Service(target, target + room, faults=faults)  # type: ignore[arg-type]
    take = churn(service, seed, hourly)
    for one in wanted:
        service.wanted = one  # type: ignore[assignment]
        for _ in range(20):
            take()
            service.play(1)
    assert service.robbed == []
    told = [key for key in service.messages if key.startswith("roll-back")]
    assert len(told) <= len(wanted)
    assert service.row.stable.version in {OLD.version, NEW.version, THIRD.version}
    if faults[NEW.version] == "never ready":
        assert service.row.stable != NEW


@given(st.integers(0, 10**10), st.integers(0, 99), st.lists(st.text(max_size=19), max_size=MOST))
def test_what_is_asked_of_the_controller_is_read_as_it_was_written(
    at: int, surge: int, anew: list[str]
) -> None:
    asked = Rolling(at, surge, tuple(anew))
    assert parse(dump(asked)) == asked
    assert parse(dump(None)) is None
