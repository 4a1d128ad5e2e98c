"""Workers elsewhere stand in for instances: at once where they are missing, after a while where they come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.capacity.memory import Memory, dump, parse
from lambdas.core.capacity.on_premises import COOLDOWN_SECONDS, OnPremisesOffset, update, with_offset
from lambdas.core.model import GroupRole
from tests.core.build import NOW, desired, group, observe, released, run, spot


def test_they_count_after_the_cooldown_and_with_the_least_that_was_seen() -> None:
    offset = update(OnPremisesOffset(), 3, NOW)
    assert offset.slots == 0
    offset = update(offset, 2, NOW + 60)
    offset = update(offset, 4, NOW + 120)
    assert update(offset, 4, NOW + COOLDOWN_SECONDS - 1).slots == 0
    assert update(offset, 4, NOW + COOLDOWN_SECONDS) == OnPremisesOffset(2, 4, NOW + COOLDOWN_SECONDS)


def test_missing_workers_count_at_once_and_unreadable_ones_keep_counting() -> None:
    assert update(OnPremisesOffset(3), 1, NOW) == OnPremisesOffset(1)
    assert update(OnPremisesOffset(3, 5, NOW), None, NOW + 60) == OnPremisesOffset(3, 5, NOW)


def test_coming_and_going_within_the_cooldown_moves_nothing() -> None:
    offset = OnPremisesOffset(1)
    for minute in range(60):
        offset = update(offset, 4 if minute % 5 else 1, NOW + 60 * minute)
        assert offset.slots == 1


@given(st.lists(st.tuples(st.none() | st.integers(0, 9), st.sampled_from([1.0, 60.0, 700.0])), max_size=30))
def test_absent_workers_do_not_count(looks: list[tuple[int | None, float]]) -> None:
    offset, now = OnPremisesOffset(), NOW
    seen = 0
    for found, seconds in looks:
        now += seconds
        offset = update(offset, found, now)
        seen = seen if found is None else found
        assert offset.slots <= seen
        assert offset == update(offset, found, now)  # looking twice changes nothing


@pytest.mark.parametrize(("base", "slots", "left"), [(0, 3, 1), (0, 9, 0), (2, 3, 2), (0, 0, 4)])
def test_aws_has_the_rest_and_always_the_base(base: int, slots: int, left: int) -> None:
    state = observe(group=group(base=base, reserved=3))
    relief = with_offset(state, slots).group
    assert (relief.target, relief.reserved) == (left, min(3, left))
    assert with_offset(observe(group=group(target=0)), 0).group.target == 0


def test_instances_are_terminated_for_on_premises_workers_and_launched_if_those_disappear() -> None:
    state = observe(*map(spot, "abcd"), on_premises_slots=2)
    first = run(state)
    assert first.actions == ()
    later = run(state, parse(dump(first.memory)), NOW + COOLDOWN_SECONDS)
    assert len(released(later.actions)) == 2
    assert "2 on premises" in later.reason
    left = tuple(i for i in state.instances if i.id not in released(later.actions))
    less = replace(state, instances=left, primary_desired=2, on_premises_slots=0)
    vanished = run(less, later.memory, NOW + COOLDOWN_SECONDS + 60)
    assert desired(vanished.actions, GroupRole.PRIMARY) == 4
    assert desired(vanished.actions, GroupRole.FALLBACK) == 2


def test_the_offset_is_stored_and_checked() -> None:
    for offset in (OnPremisesOffset(), OnPremisesOffset(2), OnPremisesOffset(1, 3, NOW)):
        assert parse(dump(Memory(on_premises_offset=offset))).on_premises_offset == offset
    with pytest.raises(ValueError, match="stored state"):
        parse(dump(Memory()).replace('"on_premises_offset":[0,0,null]', '"on_premises_offset":[0,"x",null]'))
