from __future__ import annotations

from dataclasses import replace

import pytest

from rehearsal.machines.job_migrations import collect_migrations
from rehearsal.machines.journal import Entry
from rehearsal.machines.process import TrainingProfile
from rehearsal.results.moves import Contents

PROFILE = TrainingProfile()
LOADS = 20.0
OLD, NEW = Contents(3, "old"), Contents(3, "new")

FIRST = [
    Entry(0, "created", volume="v1", zone="a"),
    Entry(10, "attaching", "A", "v1"),
    Entry(16, "mounted", "A", "v1", contents=Contents(0, "")),
    Entry(16, "running", "A", step=0, loads=LOADS),
]
LEFT = [
    Entry(100, "notice", "A"),
    Entry(140, "unmounted", "A", "v1", contents=OLD),
    Entry(146, "free", "A", "v1", "a"),
    Entry(146, "stopped", "A", step=4),
    Entry(220, "gone", "A"),
]
HALF_WAY = [
    Entry(300, "snapshot", volume="v1", snapshot="s1"),
    Entry(400, "copied", volume="v1", snapshot="s1"),
    Entry(400, "created", volume="v2", zone="b", snapshot="s1"),
    Entry(410, "attaching", "B", "v2"),
    Entry(416, "mounted", "B", "v2", contents=OLD),
    Entry(416, "deleted", volume="v1", zone="a"),
]
ARRIVED = [*HALF_WAY, Entry(420, "running", "B", step=4, loads=LOADS)]


def test_nothing_happened_before_the_first_start() -> None:
    seen = collect_migrations([], PROFILE)
    assert (seen.moves, seen.underway) == ((), False)


def test_an_announced_move_to_another_zone() -> None:
    seen = collect_migrations([*FIRST, *LEFT, *ARRIVED], PROFILE)
    [move] = seen.moves
    assert (move.cause, move.from_zone, move.to_zone) == ("notice", "a", "b")
    assert (move.from_volume, move.to_volume) == ("v1", "v2")
    assert list(move.parts.values()) == [46, 154, 100, 16, 24]
    assert (move.steps_lost, move.intact) == (0, True)
    assert not seen.underway


def test_a_loss_without_notice_begins_with_the_end_of_the_instance() -> None:
    lost = [
        Entry(100, "stopped", "A", step=4),
        Entry(100, "unmounted", "A", "v1", contents=OLD),
        Entry(100, "gone", "A"),
        Entry(160, "free", "A", "v1", "a"),
    ]
    here = [
        Entry(300, "attaching", "B", "v1"),
        Entry(306, "mounted", "B", "v1", contents=NEW),
        Entry(306, "running", "B", step=1, loads=LOADS),
    ]
    [move] = collect_migrations([*FIRST, *lost, *here], PROFILE).moves
    assert (move.cause, move.from_volume, move.to_volume) == ("loss", "v1", "v1")
    assert list(move.parts.values()) == [60, 140, 0, 6, 20]
    assert (move.steps_lost, move.intact) == (3, False)


def test_a_volume_that_is_free_before_its_loss_is_noted_was_released_in_no_time() -> None:
    lost = [
        Entry(98, "stopped", "A", step=4),
        Entry(98, "unmounted", "A", "v1", contents=OLD),
        Entry(98, "free", "A", "v1", "a"),
        Entry(100, "gone", "A"),
    ]
    [move] = collect_migrations([*FIRST, *lost, *ARRIVED], PROFILE).moves
    assert (move.cause, move.lost) == ("loss", 98)
    assert next(iter(move.parts.values())) == 0


def test_a_hand_over_begins_with_the_release() -> None:
    released = [Entry(90, "released", "A"), *LEFT[1:]]
    [move] = collect_migrations([*FIRST, *released, *ARRIVED], PROFILE).moves
    assert (move.cause, move.lost) == ("hand-over", 90)
    assert list(move.parts.values()) == [56, 154, 100, 16, 24]


def test_an_instance_that_is_lost_on_the_way_belongs_to_the_move() -> None:
    lost = [
        Entry(418, "unmounted", "B", "v2", contents=OLD),
        Entry(418, "gone", "B"),
        Entry(478, "free", "B", "v2", "b"),
    ]
    again = [
        Entry(600, "snapshot", volume="v2", snapshot="s2"),
        Entry(700, "created", volume="v3", zone="c", snapshot="s2"),
        Entry(716, "mounted", "C", "v3", contents=OLD),
        Entry(720, "running", "C", step=4, loads=LOADS),
    ]
    [move] = collect_migrations([*FIRST, *LEFT, *HALF_WAY, *lost, *again], PROFILE).moves
    assert (move.from_volume, move.to_volume, move.to_zone) == ("v1", "v3", "c")
    assert list(move.parts.values()) == [46, 454, 100, 16, 24]


def test_a_restart_on_the_same_instance_is_no_move() -> None:
    restarted = [Entry(50, "stopped", "A", step=1), Entry(60, "running", "A", step=0, loads=LOADS)]
    assert collect_migrations([*FIRST, *restarted], PROFILE).moves == ()


def test_a_loss_that_is_not_overcome_is_underway() -> None:
    assert collect_migrations([*FIRST, *LEFT], PROFILE).underway


def test_a_journal_with_a_hole_is_an_error() -> None:
    holed = [entry for entry in (*FIRST, *LEFT, *ARRIVED) if entry.kind != "snapshot"]
    with pytest.raises(ValueError, match="has no 'snapshot' of s1"):
        collect_migrations(holed, PROFILE)


def test_a_file_system_is_mounted_in_the_zone_of_the_next_instance() -> None:
    journal = [
        Entry(0, "mounted", "A", "fsap-1", "a", contents=OLD),
        Entry(2, "running", "A", step=0, loads=LOADS),
        Entry(100, "notice", "A"),
        Entry(110, "stopped", "A", step=4),
        Entry(111, "unmounted", "A", "fsap-1", "a", contents=OLD),
        Entry(111, "free", "A", "fsap-1", "a"),
        Entry(280, "mounted", "B", "fsap-1", "b", contents=OLD),
        Entry(282, "running", "B", step=4, loads=LOADS),
    ]
    found = collect_migrations(journal, PROFILE)
    [move] = found.moves
    assert (move.from_zone, move.to_zone, move.steps_lost, move.intact) == ("a", "b", 0, True)
    assert move.parts == {"release": 11, "wait": 169, "snapshot": 0, "attach": 0, "start": 2 + LOADS}


def test_contents_are_compared_by_files_and_digest() -> None:
    [move] = collect_migrations([*FIRST, *LEFT, *ARRIVED], PROFILE).moves
    assert not replace(move, after=Contents(4, "old")).intact
