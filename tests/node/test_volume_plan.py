from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.agent.config import Volume
from tests.node.configs import FakeClock
from tests.node.test_volume_aws import Recorder
from tests.node.world import Disk, World, WorldEbs, WorldLease
from tests.node.world_host import WorldFiller, WorldHost
from userdata.agent.lease.store import Lease
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume import model
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.execute import Executor, MountContext
from userdata.agent.storage.volume.growth import UNCHANGED, VolumeShape, required_change
from userdata.agent.storage.volume.model import LIVE, PREPARING, CreateVolume, EbsVolume, Observed, Snapshot
from userdata.agent.storage.volume.plan import plan, target_volume

HOME = EbsVolume("vol-home", "a", "available", None, None, None, 3, None, LIVE)
COPY = EbsVolume(
    "vol-copy", "b", "in-use", "i-me", "attached", "/dev/sdf", 7, "vol-home", PREPARING, creator="i-me"
)
MINE = {"instance": "i-me", "attachment": "attached", "device": "/dev/sdf", "state": "in-use"}


def observe(**changes: Any) -> Observed:
    base = Observed("i-me", "a", Lease(7, "vol-home", 3), (HOME,), (), None, None, None, False)
    return replace(base, **changes)


def at_home(**changes: Any) -> Observed:
    ready = {"device": "/dev/nvme1n1", "filesystem": "xfs", "lease": Lease(7, "vol-home", 7)}
    return observe(volumes=(replace(HOME, **MINE),), **{**ready, **changes})


def test_a_free_home_in_our_zone_is_attached() -> None:
    assert plan(observe()) == model.Attach("vol-home", "/dev/sdf")
    assert target_volume(observe()) == "vol-home"


def test_a_device_name_that_is_taken_is_not_used() -> None:
    old = replace(HOME, id="vol-old", token=2, **MINE)
    assert plan(observe(volumes=(HOME, old))) == model.Attach("vol-home", "/dev/sdg")


@pytest.mark.parametrize("zone", ["a", "b"])
@pytest.mark.parametrize("attachment", ["attached", "busy"])
def test_a_home_that_another_instance_has_is_waited_for(zone: str, attachment: str) -> None:
    held = replace(HOME, zone=zone, state="in-use", instance="i-other", attachment=attachment)
    step = plan(observe(volumes=(held,)))
    assert isinstance(step, model.Wait)
    assert "i-other" in step.reason
    assert attachment != "busy" or "busy" in step.reason


def test_the_writer_is_claimed_before_the_mount() -> None:
    assert plan(at_home(lease=Lease(7, "vol-home", 3))) == model.Claim()
    assert plan(at_home()) == model.Mount("/dev/nvme1n1")


def test_a_home_without_a_file_system_is_never_formatted() -> None:
    assert isinstance(plan(at_home(filesystem=None)), model.Refuse)


def test_a_mounted_home_is_filled_and_then_ready() -> None:
    assert plan(at_home(mounted="vol-home")) == model.Fill()
    assert plan(at_home(mounted="vol-home", filled=True)) == model.Ready("vol-home")


def away(**changes: Any) -> Observed:
    return observe(zone="b", **changes)


def test_a_snapshot_counts_only_if_the_current_volume_was_not_mounted_since() -> None:
    new = Snapshot("snap-1", "completed", "vol-home", 5)
    assert plan(away(snapshots=(new,))) == model.CreateVolume("snap-1", "vol-home")
    for token in (2, 3, 9, None):
        assert plan(away(snapshots=(replace(new, token=token),))) == model.CreateSnapshot("vol-home")
    assert plan(away(snapshots=(replace(new, source="vol-else"),))) == model.CreateSnapshot("vol-home")
    assert plan(away(snapshots=(replace(new, state="error"),))) == model.CreateSnapshot("vol-home")
    assert isinstance(plan(away(snapshots=(replace(new, state="pending"),))), model.Wait)


def test_a_candidate_of_this_instance_is_continued_under_a_later_lease_and_no_others() -> None:
    earlier = replace(COPY, token=6, state="available", instance=None, attachment=None, device=None)
    snapshot = Snapshot("snap-1", "completed", "vol-home", 5)
    seen = away(volumes=(HOME, earlier), snapshots=(snapshot,))
    assert plan(seen) == model.Attach("vol-copy", "/dev/sdf")
    others = (
        replace(earlier, creator="i-other"),
        replace(earlier, token=3),  # the home was mounted since: it is out of date, and may be deleted
        replace(earlier, token=8),
        replace(earlier, source="vol-before"),
        replace(earlier, tag_state="failed: mkfs.xfs: exit 1: no space"),
    )
    for other in others:
        unused = replace(seen, volumes=(HOME, other))
        assert target_volume(unused) is None
        assert isinstance(plan(unused), model.CreateVolume)


def test_failures_of_a_candidate_count_over_leases_and_instances_and_say_why() -> None:
    none = observe(lease=Lease(9, None, 0), volumes=())
    failed = [
        replace(COPY, id=f"vol-{n}", token=n, source=None, creator=f"i-{n}", tag_state=f"failed: mkfs: {n}")
        for n in (2, 5, 8)
    ]
    assert plan(replace(none, volumes=tuple(failed[:2]))) == model.CreateVolume(None, None, attempt=2)
    step = plan(replace(none, volumes=tuple(failed)))
    assert isinstance(step, model.Refuse)
    assert "vol-2 failed: mkfs: 2; vol-5 failed: mkfs: 5; vol-8 failed: mkfs: 8: see" in step.reason
    assert "delete these, then use `gpu-spot jobs retry JOB`" in step.reason
    since = replace(none, lease=Lease(9, None, 5), volumes=tuple(failed))  # one was mounted under token 5
    assert plan(since) == model.CreateVolume(None, None, attempt=1)


def test_a_leftover_gives_its_device_name_up_and_nothing_else_does() -> None:
    new = replace(COPY, state="available", instance=None, attachment=None, device=None)
    failed = replace(COPY, id="vol-bad", token=6, tag_state="failed: mkfs")
    seen = away(volumes=(HOME, failed, new), devices=("/dev/sdf",))
    assert plan(seen) == model.Discard("detach", "vol-bad")
    leaving = replace(seen, volumes=(HOME, replace(failed, attachment="detaching"), new))
    assert plan(leaving) == model.Wait("one of /dev/sdf to be free for volume vol-copy")


def test_the_old_home_goes_only_after_the_new_one_is_mounted_and_committed() -> None:
    snapshot = Snapshot("snap-1", "completed", "vol-home", 7)
    base = away(volumes=(HOME, COPY), snapshots=(snapshot,), device="/dev/nvme1n1", filesystem="xfs")
    made = replace(COPY, state="available", instance=None, attachment=None, device=None)
    assert plan(replace(base, volumes=(HOME, made))) == model.Attach("vol-copy", "/dev/sdf")
    assert plan(base) == model.Mount("/dev/nvme1n1")
    assert plan(replace(base, mounted="vol-copy")) == model.Commit("vol-copy")
    committed = replace(base, mounted="vol-copy", filled=True, lease=Lease(7, "vol-copy", 7))
    assert plan(committed) == model.MarkLive("vol-copy")
    live = replace(committed, volumes=(HOME, replace(COPY, tag_state=LIVE)))
    assert plan(live) == model.Discard("volume", "vol-home")
    assert plan(replace(live, volumes=live.volumes[1:])) == model.Ready("vol-copy")


def test_a_copy_without_a_file_system_is_rejected_and_both_are_retained() -> None:
    assert isinstance(plan(away(volumes=(HOME, COPY), device="/dev/nvme1n1")), model.Refuse)


def test_what_a_later_lease_made_is_not_touched() -> None:
    later = replace(HOME, id="vol-later", token=8, tag_state=PREPARING, creator="i-me")
    done = at_home(mounted="vol-home", filled=True)
    assert plan(replace(done, volumes=(*done.volumes, later))) == model.Ready("vol-home")
    assert plan(replace(done, snapshots=(Snapshot("s", "error", "vol-home", 8),))) == model.Ready("vol-home")


def test_a_leftover_at_another_instance_is_named_and_left() -> None:
    done = at_home(mounted="vol-home", filled=True)
    other = replace(HOME, id="vol-x", token=5, instance="i-dying", state="in-use", attachment="attached")
    assert plan(replace(done, volumes=(*done.volumes, other))) == model.Ready("vol-home", ("vol-x",))


def test_a_second_volume_that_no_move_explains_is_an_error() -> None:
    step = plan(observe(volumes=(HOME, replace(HOME, id="vol-hand", token=None))))
    assert isinstance(step, model.Refuse)
    assert "vol-hand" in step.reason
    other = replace(HOME, id="vol-other-job")  # with the token and state of another job
    both = replace(at_home(mounted="vol-home", filled=True), volumes=(replace(HOME, **MINE), other))
    assert plan(both) == model.Ready("vol-home", ("vol-other-job",))


def test_first_boot_creates_formats_mounts_and_commits() -> None:
    none = observe(lease=Lease(1, None, 0), volumes=())
    assert plan(none) == model.CreateVolume(None, None)
    new = EbsVolume("vol-new", "a", "creating", None, None, None, 1, None, PREPARING, creator="i-me")
    assert isinstance(plan(replace(none, volumes=(new,))), model.Wait)
    here = replace(none, volumes=(replace(new, **MINE),), device="/dev/nvme1n1")
    assert plan(here) == model.Format("/dev/nvme1n1")
    assert plan(replace(here, filesystem="xfs")) == model.Mount("/dev/nvme1n1")
    assert plan(replace(here, filesystem="xfs", mounted="vol-new")) == model.Commit("vol-new")


FIRST = {"lease": Lease(1, None, 0), "volumes": ()}


def test_no_blank_volume_is_created_next_to_one_that_belongs_to_no_job() -> None:
    step = plan(observe(**FIRST, unclaimed=("vol-earlier", "vol-other")))
    assert isinstance(step, model.Refuse)
    assert "vol-earlier, vol-other has the name of data volumes (DL-datasets-checkpoints)" in step.reason
    assert "`gpu-spot jobs adopt-volume JOB vol-earlier`, or `--blank`" in step.reason
    prepared = observe(**FIRST, unclaimed=("vol-earlier",), prepared="snap-dataset")
    assert plan(prepared) == model.CreateVolume("snap-dataset", None)


def test_only_a_job_that_never_had_a_volume_or_snapshot_is_asked_about() -> None:
    assert observe(**FIRST).is_first_volume
    assert not observe().is_first_volume
    own = Snapshot("snap-own", "completed", "vol-deleted", 1)
    for changes in ({"lease": Lease(8, None, 3)}, {"volumes": (HOME,)}, {"snapshots": (own,)}):
        assert not observe(**{**FIRST, **changes}).is_first_volume


def test_a_snapshot_that_a_user_tagged_becomes_the_first_volume() -> None:
    tagged = Snapshot("snap-tagged", "completed", "vol-earlier", None, size_gib=30)
    first = observe(**FIRST, snapshots=(tagged,))
    assert plan(first) == model.CreateVolume("snap-tagged", None, 30)
    pending = replace(tagged, state="pending", progress="42%")
    assert plan(replace(first, snapshots=(pending,))) == model.Wait(
        "snapshot snap-tagged to be completed (42%)"
    )
    assert isinstance(plan(replace(first, snapshots=(replace(tagged, state="error"),))), model.Refuse)
    two = plan(replace(first, snapshots=(tagged, replace(tagged, id="snap-two"))))
    assert isinstance(two, model.Refuse)
    assert "snap-tagged, snap-two" in two.reason
    own = replace(tagged, id="snap-own", token=57, started=50.0)
    assert plan(replace(first, snapshots=(own, tagged))) == plan(first)
    # The job's own: the newest of all job tables.
    late, failed = replace(own, id="late", token=1, started=60.0), replace(own, state="error", started=70.0)
    assert plan(replace(first, snapshots=(late, own, failed))) == model.CreateVolume("late", None, 30)
    assert plan(replace(first, snapshots=(failed,))) == model.CreateVolume(None, None)


def test_the_copy_of_a_tagged_snapshot_is_never_formatted() -> None:
    tagged = Snapshot("snap-tagged", "completed", "vol-earlier", None)
    copy = replace(
        EbsVolume("vol-new", "a", "creating", None, None, None, 1, None, PREPARING, creator="i-me"), **MINE
    )
    first = observe(**FIRST, snapshots=(tagged,), device="/dev/nvme1n1")
    assert isinstance(plan(replace(first, volumes=(copy,))), model.Refuse)
    assert plan(replace(first, volumes=(copy,), filesystem="xfs")) == model.Mount("/dev/nvme1n1")


def test_a_lost_table_adopts_the_one_volume_under_a_token_newer_than_all() -> None:
    lost = observe(lease=Lease(1, None, 0), snapshots=(Snapshot("s", "completed", "vol-home", 9),))
    assert plan(lost) == model.Adopt("vol-home", 10)
    hand = observe(lease=Lease(1, None, 0), volumes=(replace(HOME, token=None, tag_state=None),))
    assert plan(hand) == model.Adopt("vol-home", 2)
    two = observe(lease=Lease(1, None, 0), volumes=(HOME, replace(HOME, id="vol-2")))
    assert isinstance(plan(two), model.Refuse)


def test_something_else_at_the_mount_point_is_not_unmounted() -> None:
    step = plan(at_home(mounted=model.FOREIGN))
    assert isinstance(step, model.Wait)
    assert plan(at_home(mounted="vol-left-by-a-crash")) == model.Unmount()


def retained(*snapshots: Snapshot) -> set[str]:
    """What is left of the snapshots of a home, itself a copy of ``vol-old``, when all is tidied up."""
    home, left = replace(HOME, source="vol-old", **MINE), list(snapshots)
    done = replace(at_home(mounted="vol-home", filled=True), volumes=(home,))
    for _ in snapshots:
        step = plan(replace(done, snapshots=tuple(left)))
        if isinstance(step, model.Ready):
            break
        assert isinstance(step, model.Discard)
        left = [s for s in left if s.id != step.id]
    return {s.id for s in left}


def test_the_newest_complete_snapshot_and_a_pending_one_are_retained() -> None:
    moved = Snapshot("moved", "completed", "vol-old", 6, started=50.0)
    early = Snapshot("early", "completed", "vol-home", 7, started=60.0)
    late = replace(early, id="late", started=70.0)
    pending = replace(early, id="pending", state="pending", started=80.0)
    failed = replace(pending, id="failed", state="error", started=90.0)
    assert retained(moved) == {"moved"}
    assert retained(moved, late, early) == {"late"}
    assert retained(pending, early, moved) == {"pending", "early"}
    assert retained(failed, pending, late, moved) == {"pending", "late"}
    assert retained(pending, replace(pending, id="second", started=81.0), late) == {"second", "late"}
    assert retained(failed) == set()


def test_a_foreign_snapshot_is_neither_retained_nor_deleted() -> None:
    other = Snapshot("other", "completed", "vol-older", 7)
    assert retained(other) == set()
    assert retained(replace(other, token=None), replace(other, id="later", token=8)) == {"other", "later"}


@pytest.fixture
def world(clock: FakeClock) -> World:
    made = World(clock)
    clock.on_sleep = lambda seconds: made.settle()
    return made


def boot(world: World, size: int, throughput: int = 125, zone: str = "a") -> Disk:
    """A whole life of an instance whose stack file says that size."""
    host, ebs = WorldHost(world, "i-x"), WorldEbs(world, "i-x", zone, size)
    place = MountContext("i-x", zone, Path("/dltraining"), 900.0, VolumeShape(size, throughput))
    filler = WorldFiller(host)
    executor = Executor(place, ebs, WorldLease(world, "i-x"), host, filler, world.clock)
    held = executor.up()
    executor.down(held)
    world.clock.sleep(60)
    return world.disks[held.volume]


def test_a_job_that_lost_volume_and_item_starts_from_its_newest_snapshot(world: World) -> None:
    """``pulumi destroy`` and a deleted volume: a blank one was created, and the snapshot deleted later."""
    boot(world, 100).durable = ("step 57",)
    boot(world, 100, zone="b")  # a migration leaves a snapshot
    world.disks.clear()
    world.item.clear()
    world._client_tokens.clear()
    for _ in range(3):
        assert (boot(world, 100).durable or ())[0] == "step 57"


def asked(world: World) -> int:
    return sum(operation == "modify_volume" for _, operation in world.calls)


def test_what_is_asked_for() -> None:
    home = SimpleNamespace(size_gib=100, throughput_mib=125)
    for wanted, found in {
        VolumeShape(100, 125): UNCHANGED,
        VolumeShape(200, 125): VolumeShape(200, 0),
        VolumeShape(50, 125): UNCHANGED,
        VolumeShape(100, 500): VolumeShape(0, 500),
        VolumeShape(300, 250): VolumeShape(300, 250),
        UNCHANGED: UNCHANGED,
    }.items():
        assert required_change(home, wanted) == found  # type: ignore[arg-type]
    of_another_type = SimpleNamespace(size_gib=100, throughput_mib=0)
    assert required_change(of_another_type, VolumeShape(100, 500)) == UNCHANGED  # type: ignore[arg-type]


def test_a_mounted_volume_grows_before_the_dataset_is_copied() -> None:
    seen = at_home(mounted="vol-home", grown=False)
    assert plan(seen) == model.Grow()
    assert plan(at_home(mounted="vol-home")) == model.Fill()


def test_volume_and_file_system_grow_and_nothing_is_asked_twice(world: World) -> None:
    assert boot(world, 100).filesystem_gib == 100
    assert asked(world) == 0
    grown = boot(world, 250, 300)
    assert (grown.size, grown.throughput, grown.filesystem_gib) == (250, 300, 250)
    boot(world, 250, 300)
    assert asked(world) == 1


def test_a_change_within_the_cooldown_stops_nothing_and_is_requested_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    boot(world, 100)
    boot(world, 200)
    assert boot(world, 300).size == 200
    assert "volume not modified yet" in caplog.messages
    world.clock.sleep(4000)
    again = boot(world, 300)
    assert (again.size, again.filesystem_gib) == (300, 300)


def test_a_volume_never_shrinks_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    boot(world, 200)
    assert boot(world, 100).size == 200
    assert asked(world) == 0
    assert "volume not shrunk: EBS volumes only grow" in caplog.messages


def test_a_move_makes_the_copy_as_large_as_the_stack_says_and_never_smaller(world: World) -> None:
    boot(world, 100)
    moved = boot(world, 150, zone="b")
    assert (moved.size, moved.filesystem_gib, moved.zone) == (150, 150, "b")
    assert boot(world, 120, zone="a").size == 150
    assert asked(world) == 0


def test_what_ec2_is_asked() -> None:
    client: Any = Recorder({}, {}, {"VolumeId": "vol-2"})
    adapter = AwsEbs(client, "dev", "g", "j", Volume(size_gib=10))
    adapter.modify_volume("vol-1", 20, 0)
    adapter.modify_volume("vol-1", 0, 500)
    adapter.create_volume("a", 1, "i-1", CreateVolume("snap-1", "vol-1", 30))
    assert client.asked[:2] == [
        ("modify_volume", {"VolumeId": "vol-1", "Size": 20}),
        ("modify_volume", {"VolumeId": "vol-1", "Throughput": 500}),
    ]
    assert client.asked[2][1]["Size"] == 30


def _can_mount() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("mkfs.xfs", "mount", "losetup", "xfs_growfs")))


@pytest.mark.skipif(not _can_mount(), reason="a real file system needs root, xfsprogs and mount")
def test_a_real_file_system_fills_its_larger_device(tmp_path: Path) -> None:
    image, place, host = tmp_path / "image", tmp_path / "place", SystemHost()
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(320 * 2**20)
    host.run(["mkfs.xfs", "-q", str(image)], 60)
    try:
        device = host.run(["losetup", "--find", "--show", str(image)], 60).strip()
    except AgentError as error:
        pytest.skip(f"no loop devices here: {error}")
    try:
        host.run(["mount", device, str(place)], 60)
        before = os.statvfs(place).f_blocks
        host.grow(device, place)
        assert os.statvfs(place).f_blocks == before
        with image.open("r+b") as file:
            file.truncate(480 * 2**20)
        host.run(["losetup", "--set-capacity", device], 60)
        assert host.capacity(device) == 480 * 2**20
        host.grow(device, place)
        assert os.statvfs(place).f_blocks > before * 1.4
    finally:
        host.unmount(place)
        host.run(["losetup", "--detach", device], 60)
