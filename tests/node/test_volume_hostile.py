"""Errors of AWS and the operating system: the volume survives them or names the problem."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.node import job_table, world
from tests.node.crash import Outcome, Region
from tests.node.test_volume_plan import HOME, at_home, away
from tests.node.world import World
from tests.node.world_host import WorldHost
from userdata.agent.machine.errors import AgentError, HostError, LeaseLostError, RefusedError, TransientError
from userdata.agent.storage.volume import model
from userdata.agent.storage.volume.model import PREPARING, EbsVolume, Snapshot
from userdata.agent.storage.volume.plan import plan

TABLE = {"acquire", "renew", "claim", "commit", "adopt", "release"}
CHANGES = {
    *("create_volume", "create_snapshot", "attach_volume", "detach_volume", "create_tags"),
    *("delete_volume", "delete_snapshot", "modify_volume"),
}


@pytest.fixture
def region() -> Region:
    """A home in zone ``a`` with a day's work on it."""
    made = Region("calm", 3)
    made.live("i-before", "a", release=True)
    made.clock.sleep(60)
    return made


def on(operation: str, act: Callable[[int], None]) -> Callable[[str, str], None]:
    """Act at each call of that name, with the number of calls so far."""
    count = 0

    def hook(instance: str, called: str) -> None:
        nonlocal count
        if called == operation:
            count += 1
            act(count)

    return hook


def fail_newest(world: World) -> None:
    list(world.disks.values())[-1].failed = True


# Volumes and snapshots that EBS cannot bring up (states of the EC2 API: ``VolumeState``, ``SnapshotState``).


def test_a_copy_in_state_error_is_recreated_and_deleted(region: Region) -> None:
    region.world.after = on("create_volume", lambda n: fail_newest(region.world) if n <= 2 else None)
    region.live("i-x", "b", release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


def test_three_failed_copies_are_for_people_and_the_home_is_as_it_was(region: Region) -> None:
    home = region.world.home
    region.world.after = on("create_volume", lambda n: fail_newest(region.world))
    with pytest.raises(RefusedError, match=r"ended in state error: see the EBS console .* KMS key"):
        region.live("i-x", "b", release=True)
    region.clock.sleep(200)
    with pytest.raises(RefusedError, match="jobs retry"):  # nor does a new instance make any
        region.live("i-y", "b", release=True)
    made = [operation for _, operation in region.world.calls if operation == "create_volume"]
    assert len(made) == 1 + 3
    assert region.world.home == home
    region.world.after = lambda instance, operation: None
    for name in [disk.id for disk in region.world.disks.values() if disk.failed]:
        del region.world.disks[name]  # as the refusal says
    region.clock.sleep(200)
    region.live("i-z", "b", release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


def test_a_snapshot_in_state_error_is_retaken_and_the_third_needs_an_operator(region: Region) -> None:
    def fail(most: int) -> Callable[[str, str], None]:
        def act(count: int) -> None:
            if count <= most:
                list(region.world.copies.values())[-1].failed = True

        return on("create_snapshot", act)

    region.world.after = fail(3)
    with pytest.raises(RefusedError, match="ended in state error"):
        region.live("i-x", "b", release=True)
    region.clock.sleep(200)
    for name in [copy.id for copy in region.world.copies.values() if copy.failed]:
        del region.world.copies[name]  # as the refusal says
    region.world.after = fail(2)
    region.live("i-y", "b", release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


def test_a_home_in_state_error_is_for_people_and_one_that_is_being_deleted_is_none() -> None:
    broken = replace(HOME, state="error")
    assert isinstance(plan(replace(at_home(), volumes=(broken,))), model.Refuse)
    assert isinstance(plan(replace(at_home(), volumes=(replace(HOME, state="deleting"),))), model.Wait)


def test_a_deleted_candidate_is_recreated() -> None:
    gone = EbsVolume("vol-c", "b", "deleting", None, None, None, 7, "vol-home", PREPARING, creator="i-me")
    snapshot = Snapshot("snap-1", "completed", "vol-home", 7)
    step = plan(away(volumes=(HOME, gone), snapshots=(snapshot,)))
    assert step == model.CreateVolume("snap-1", "vol-home")


# Refusals.


def test_a_zone_without_room_is_waited_for_and_then_said(region: Region) -> None:
    def refuse(most: int) -> Callable[[str, str], None]:
        def act(count: int) -> None:
            if count <= most:
                raise TransientError("ec2 create_volume: InsufficientVolumeCapacity")

        return on("create_volume", act)

    region.world.before = refuse(20)
    region.live("i-x", "b", release=True)
    region.clock.sleep(60)
    region.world.before = refuse(10_000)
    with pytest.raises(AgentError, match="timed out after 900 s: CreateVolume"):
        region.live("i-y", "a", release=True)
    region.world.before = lambda instance, operation: None
    region.clock.sleep(200)
    region.live("i-y", "a", release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


def test_the_next_instance_finds_a_slow_snapshot(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.node.world.SNAPSHOT_SECONDS", 4000.0)
    tries = 0
    while tries < 10:
        tries += 1
        try:
            region.live("i-x", "b", release=True)
            break
        except AgentError as error:
            assert "to be completed" in str(error)  # noqa: PT017
            region.clock.sleep(10)
    assert 3 <= tries < 10
    moves = {copy.content for copy in region.world.copies.values()}
    assert moves
    assert sum(operation == "create_snapshot" for _, operation in region.world.calls) <= 4


# The operating system.


@pytest.mark.parametrize("step", ["mount", "mkfs", "unmount"])
@pytest.mark.parametrize("zone", ["a", "b"])
def test_what_the_machine_refuses_loses_nothing(step: str, zone: str) -> None:
    region, refused = Region("calm", 3), 0
    if step != "mkfs":
        region.live("i-before", "a", release=True)
        region.clock.sleep(60)

    def point(instance: str, operation: str) -> None:
        nonlocal refused
        if operation == step and refused < 2:
            refused += 1
            raise AgentError(f"{step}: exit 32: target is busy")

    region.world.point = point
    _persist(region, "i-x", zone)
    assert refused == 2
    region.world.point = lambda instance, operation: None
    region.clock.sleep(150)
    region.live("i-last", "b", release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


# Answers that do not come.


def _persist(region: Region, instance: str, zone: str) -> None:
    """A life in which systemd starts what failed again."""
    for _ in range(40):
        executor = region.executor(instance, zone)
        try:
            held = executor.up()
            break
        except AgentError:
            region.clock.sleep(10)
    else:
        raise AssertionError("it never came up")
    missing = [p for p in region.promised if p not in WorldHost(region.world, instance).content()]
    assert not missing
    region.work(instance)
    for _ in range(40):
        try:
            executor.down(held)
            return
        except AgentError:
            region.clock.sleep(10)
    raise AssertionError("it never let go")


@pytest.mark.parametrize("seed", range(25))
def test_throttles_and_answers_that_are_lost_after_success_lose_nothing(seed: int) -> None:
    chance, region = random.Random(seed), Region("calm", seed)

    def before(instance: str, operation: str) -> None:
        if operation in TABLE and chance.random() < 0.1:
            raise job_table.refusal("ProvisionedThroughputExceededException")

    def after(instance: str, operation: str) -> None:
        if operation in TABLE and chance.random() < 0.1:
            raise job_table.no_answer()
        if operation in CHANGES and chance.random() < 0.2:
            raise TransientError(f"ec2 {operation}: ReadTimeoutError")  # as AwsEbs says it

    region.world.before, region.world.after = before, after
    for life in range(4):
        _persist(region, f"i-{life}", chance.choice("ab"))
        region.clock.sleep(chance.uniform(0, 200))
    region.world.before = region.world.after = lambda instance, operation: None
    region.clock.sleep(200)
    region.live("i-last", chance.choice("ab"), release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)


def test_a_repeated_release_that_had_been_done_is_no_failure(region: Region) -> None:
    executor = region.executor("i-x", "a")
    held = executor.up()

    def before(instance: str, operation: str) -> None:
        if operation == "release":  # the first try was carried out, its answer lost, and botocore tries again
            region.world.item.pop("holder")

    region.world.before = before
    executor.down(held)
    assert region.world.holder is None


def test_leftovers_go_with_the_volume_in_a_process_of_its_own(region: Region) -> None:
    """``volume down`` runs when an instance stops, often the last one of the job."""
    held = region.executor("i-x", "a").up()
    tags = {"token": 1, "state": PREPARING, "source": None}
    region.world.disks["vol-left"] = world.Disk("vol-left", "b", 100, tags, 0.0, None, None)
    region.executor("i-x", "a").down(held)
    region.clock.sleep(60)
    assert "vol-left" not in region.world.disks


def test_a_lost_lease_detaches_the_volume(region: Region) -> None:
    def overtaken(instance: str, operation: str) -> None:
        if operation == "claim":
            region.world.item["holder"] = {"S": "i-other"}

    region.world.before = overtaken
    with pytest.raises(LeaseLostError):
        region.executor("i-x", "a").up()
    region.clock.sleep(30)
    assert [disk.instance for disk in region.world.disks.values()] == [None]


def test_what_is_not_flushed_is_not_there_after_a_crash_and_was_not_promised(region: Region) -> None:
    region.executor("i-x", "a").up()
    host = WorldHost(region.world, "i-x")
    host.write("never flushed")
    region.world.terminate("i-x")
    region.clock.sleep(150)
    region.live("i-y", "a", release=True)
    [disk] = region.world.disks.values()
    assert "never flushed" not in (disk.durable or ())


@pytest.mark.parametrize("stuck", [1, 9])
def test_an_attachment_that_does_not_end_is_tried_at_another_device_then_on_another_host(
    monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    """The first ``stuck`` attachments to this host never leave ``attaching``."""
    region = Region("calm", 3)
    region.live("i-before", "a", release=True)
    region.clock.sleep(100)
    attach, tried = world.WorldEbs.attach, list[str]()

    def slow(ebs: world.WorldEbs, volume: str, instance: str, device: str) -> None:
        tried.append(device)
        with monkeypatch.context() as patch:
            if len(tried) <= stuck:
                patch.setattr(world, "ATTACH_SECONDS", 1e9)
            attach(ebs, volume, instance, device)

    monkeypatch.setattr(world.WorldEbs, "attach", slow)
    if stuck == 1:
        region.live("i-here", "a", release=True)
    else:
        with pytest.raises(HostError, match="at /dev/sdf, /dev/sdg: the host is at fault"):
            region.live("i-here", "a", release=True)
        monkeypatch.undo()
        region.live("i-next", "a", release=True)
    assert tried[:2] == ["/dev/sdf", "/dev/sdg"]
    assert len(tried) == 2
