from __future__ import annotations

import pytest

from rehearsal.machines.disks.blocks import Blocks
from rehearsal.machines.times import Times


@pytest.fixture
def blocks() -> Blocks:
    found = Blocks()
    found.created("v1", 100)
    found.wrote("v1", 60_000)
    return found


def test_the_first_snapshot_copies_used_not_provisioned_blocks(blocks: Blocks) -> None:
    assert blocks.start_snapshot("s1", "v1") == 60_000


def test_the_next_snapshot_copies_changed_blocks(blocks: Blocks) -> None:
    blocks.start_snapshot("s1", "v1")
    blocks.wrote("v1", 300)
    assert blocks.start_snapshot("s2", "v1") == 300
    assert blocks.start_snapshot("s3", "v1") == 0


def test_the_chain_continues_through_a_volume_created_from_a_snapshot(blocks: Blocks) -> None:
    blocks.start_snapshot("s1", "v1")
    blocks.wrote("v1", 500)  # not in s1, and so not on its copy
    blocks.created("v2", 100, "s1")
    blocks.wrote("v2", 40)
    assert blocks.start_snapshot("s2", "v2") == 40
    blocks.created("v3", 100, "s2")
    assert blocks.start_snapshot("s3", "v3") == 0


def test_a_full_copy_after_all_snapshots_are_deleted(blocks: Blocks) -> None:
    blocks.start_snapshot("s1", "v1")
    blocks.created("v2", 100, "s1")
    blocks.discarded("s1")
    blocks.wrote("v2", 40)
    assert blocks.start_snapshot("s2", "v2") == 60_040


@pytest.mark.parametrize(("deleted", "copied"), [("s1", 7), ("s2", 307)], ids=["an older one", "the newest"])
def test_deleting_leaves_the_blocks_of_the_newest_alone_to_the_next(
    blocks: Blocks, deleted: str, copied: int
) -> None:
    blocks.start_snapshot("s1", "v1")
    blocks.wrote("v1", 300)
    blocks.start_snapshot("s2", "v1")
    blocks.discarded(deleted)
    blocks.wrote("v1", 7)
    assert blocks.start_snapshot("s3", "v1") == copied


def test_a_snapshot_of_another_volume_saves_no_copy(blocks: Blocks) -> None:
    blocks.start_snapshot("s1", "v1")
    blocks.created("v2", 100)
    blocks.wrote("v2", 10)
    assert blocks.start_snapshot("s2", "v2") == 10


def test_more_than_the_whole_volume_is_never_copied(blocks: Blocks) -> None:
    blocks.wrote("v1", 1e6)
    assert blocks.start_snapshot("s1", "v1") == 100 * 1024


def test_times_depend_on_changed_blocks_and_initialization_rate() -> None:
    times = Times(snapshot=30, snapshot_mib=250, lazy_mib=100)
    assert times.snapshot_of(500) == 32
    assert times.first_read(600, 0) == 6
    assert times.first_read(600, 300) == 2
