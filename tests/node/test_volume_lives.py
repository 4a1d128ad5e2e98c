"""Random lives of a job's volume: whatever fails, what is meant to be is there, and no more.

AWS refuses calls, or carries them out and does not answer; mkfs and mount fail or are killed; processes are
killed and start again, machines reboot and are taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.node import job_table
from tests.node.crash import Outcome, Region
from tests.node.test_volume_hostile import CHANGES, TABLE
from tests.node.world import KilledError
from tests.soak import sample
from userdata.agent.machine.errors import AgentError, TransientError

LIVES = 240
MOST = 5
NOTHING: Callable[[str, str], None] = lambda instance, operation: None  # noqa: E731


class Faults:
    """Faults at random calls, and a kill at a random one."""

    def __init__(self, region: Region, chance: random.Random) -> None:
        self.region, self.chance = region, chance
        self.host_faults = 2
        """Failures of mkfs and mount, which only so many candidates survive."""
        self.fatal = -1
        """Calls, also to the operating system, until the process is killed."""
        world = region.world
        world.point, world.before, world.after = self.point, self.before, self.after

    def clear(self) -> None:
        world = self.region.world
        world.point = world.before = world.after = NOTHING

    def point(self, instance: str, operation: str) -> None:
        self.fatal -= 1
        if self.fatal == 0:
            raise KilledError(operation)
        if operation in ("mkfs", "mount") and self.host_faults and self.chance.random() < 0.3:
            self.host_faults -= 1
            raise AgentError(f"{operation}: exit 1: no")

    def before(self, instance: str, operation: str) -> None:
        if operation in TABLE and self.chance.random() < 0.05:
            raise job_table.refusal("ProvisionedThroughputExceededException")
        if operation not in TABLE and self.chance.random() < 0.05:
            raise TransientError(f"ec2 {operation}: RequestLimitExceeded")

    def after(self, instance: str, operation: str) -> None:
        if operation in TABLE and self.chance.random() < 0.05:
            raise job_table.no_answer()
        if operation in CHANGES and self.chance.random() < 0.1:
            raise TransientError(f"ec2 {operation}: ReadTimeoutError")


def _live(region: Region, faults: Faults, instance: str, zone: str) -> None:
    """One instance, until it has worked and given back, or is taken; systemd starts what failed again."""
    chance = faults.chance
    for _ in range(60):
        faults.fatal = chance.randrange(1, 60) if chance.random() < 0.7 else -1
        try:
            region.live(instance, zone, release=True)
        except (AgentError, KilledError) as error:
            if isinstance(error, KilledError) and chance.random() < 0.3:
                return region.world.terminate(instance)
            if chance.random() < 0.2:
                region.world.reboot(instance)
            region.clock.sleep(10)  # RestartSec
        else:
            return None
    return region.world.terminate(instance)


def play(seed: int) -> tuple[Outcome, int]:
    """Return the damage of a random history, and the most volumes that there were at once."""
    chance = random.Random(seed)
    region = Region(chance.choice(("calm", "lag")), seed)
    faults, most = Faults(region, chance), 0
    for life in range(3):
        _live(region, faults, f"i-{life}", chance.choice("ab"))
        most = max(most, sum(disk.gone_at is None for disk in region.world.disks.values()))
    faults.clear()
    for last in range(2):  # the second sees what a description of the first hid
        region.clock.sleep(200)
        region.live(f"i-last-{last}", chance.choice("ab"), release=True)
    region.clock.sleep(60)
    return region.damage(), most


@pytest.mark.parametrize("part", sample(range(4), 4))
def test_random_lives_leave_exactly_what_is_meant_to_be(part: int) -> None:
    played = {seed: play(seed) for seed in range(part, LIVES, 4)}
    assert {seed: found for seed, (found, _) in played.items() if found != Outcome(0, 0)} == {}
    # The home, two that failed, and those of two instances that were taken.
    assert max(most for _, most in played.values()) <= MOST


def _kill_always_at(region: Region, operation: str) -> None:
    def strike(instance: str, called: str) -> None:
        if called == operation:
            raise KilledError(operation)

    region.world.after = strike


@pytest.mark.parametrize("zone", ["a", "b"])
@pytest.mark.parametrize("operation", ["create_volume", "attach_volume"])
def test_whoever_is_killed_before_the_commit_again_and_again_has_one_volume(
    zone: str, operation: str
) -> None:
    region = Region("calm", 3)
    if zone == "b":
        region.live("i-before", "a", release=True)
        region.clock.sleep(60)
    before = len(region.world.disks)
    for _ in range(20):
        with_kill = region.executor("i-x", zone)
        _kill_always_at(region, operation)
        try:
            with_kill.up()
        except KilledError:
            region.clock.sleep(10)
        else:
            break
    assert len(region.world.disks) == before + 1
    region.world.after = NOTHING
    region.clock.sleep(30)
    region.live("i-x", zone, release=True)
    region.clock.sleep(60)
    assert region.damage() == Outcome(0, 0)
    assert sum(called == "create_volume" for _, called in region.world.calls) == before + 1


def test_a_format_that_always_fails_ends_after_three_volumes_with_its_reason() -> None:
    region = Region("calm", 3)

    def no_xfsprogs(instance: str, operation: str) -> None:
        if operation == "mkfs":
            raise AgentError("mkfs.xfs: No such file or directory")

    region.world.point = no_xfsprogs
    reasons = []
    for _ in range(30):  # each 10 s, on three instances
        try:
            region.executor(f"i-{len(reasons) // 10}", "a").up()
        except AgentError as error:
            reasons.append(str(error))
            region.clock.sleep(10)
    assert len(region.world.disks) == 3
    assert reasons[:3] == ["mkfs.xfs: No such file or directory"] * 3
    assert "failed: mkfs.xfs: No such file or directory" in reasons[3]
    assert "the image has xfsprogs" in reasons[-1]


def test_a_device_that_goes_between_look_and_format_says_nothing_of_its_volume() -> None:
    region, gone = Region("calm", 3), []
    executor = region.executor("i-x", "a")
    host, look = executor.host, executor.host.filesystem

    def filesystem(device: str) -> str | None:
        if len(gone) == 1:
            gone.append(device)
            raise TransientError(f"{device}: No such file or directory")
        return look(device)

    def point(instance: str, operation: str) -> None:
        if operation == "mkfs" and not gone:
            gone.append(operation)
            raise AgentError("mkfs.xfs: exit 1: /dev/nvme1n1: No such file or directory")

    host.filesystem = filesystem  # type: ignore[method-assign]
    region.world.point = point
    executor.up()
    assert len(gone) == 2
    [disk] = region.world.disks.values()
    assert disk.tags["state"] == "live"
