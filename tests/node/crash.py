"""Kill ``volume`` before and after every API call of a boot, or let the instance be taken; go on in every way
there is; count the damage.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from tests.node.configs import FakeClock
from tests.node.world import KilledError, World, WorldEbs, WorldLease
from tests.node.world_host import WorldFiller, WorldHost
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, LeaseLostError, WorkCancelledError
from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots, SnapshotSchedule
from userdata.agent.storage.volume.execute import Executor, MountContext
from userdata.agent.storage.volume.model import HeldVolume

Start = Literal["no volume", "same zone", "other zone"]
Then = Literal[
    "dies",
    "dies, other zone",
    "reboots",
    "process restarts",
    "is overtaken",
    "is overtaken, other zone",
    "is taken",
    "is taken, other zone",
]
STARTS: tuple[Start, ...] = get_args(Start)
THENS: tuple[Then, ...] = get_args(Then)
HARMLESS = {"describe_volumes", "describe_snapshots", "renew", "detach_volume", "release"}
"""Operations that ``volume up`` may still call after a notice."""
CONDITIONS = {
    "calm": (0.0, 0.0),
    "lag": (15.0, 0.0),
    "throttled": (0.0, 0.3),
    "lag and throttled": (15.0, 0.3),
}
ZONES = ("a", "b")


@dataclass(frozen=True)
class Case:
    start: Start
    conditions: str
    then: Then
    at: int
    """The API call of the boot that is interrupted, counted from 0."""
    side: Literal["before", "after"]


@dataclass(frozen=True)
class Outcome:
    lost: int
    orphaned: int
    error: str = ""


class Region:
    """A simulated region, and the writes that training knows to be safe on the volume."""

    def __init__(self, conditions: str, seed: int, clock: FakeClock | None = None) -> None:
        lag, throttle = CONDITIONS[conditions]
        self.clock = clock or FakeClock()
        self.world = World(self.clock, lag, throttle, seed)
        self.promised: list[str] = []
        self.taken: str | None = None
        """The instance that has a notice."""
        self.is_notified = False
        self.clock.on_sleep = lambda seconds: self.world.settle()

    def executor(self, instance: str, zone: str) -> Executor:
        host, ebs, leases = self._parts(instance, zone)
        return Executor(
            MountContext(instance, zone, Path("/dltraining"), 900.0),
            ebs,
            leases,
            host,
            WorldFiller(host),
            self.clock,
            lambda: self._attend(instance),
        )

    def _ahead(self, instance: str, zone: str, held: HeldVolume) -> BackgroundSnapshots:
        """Snapshots of what is at work, one every minute."""
        schedule = SnapshotSchedule(50.0, self.clock.wall, lambda: instance != self.taken)
        host, ebs, leases = self._parts(instance, zone)
        place = Path("/dltraining")
        return BackgroundSnapshots(held, place, ebs, leases, host, self.clock, schedule, at_once)

    def _parts(self, instance: str, zone: str) -> tuple[WorldHost, WorldEbs, WorldLease]:
        world = self.world
        return WorldHost(world, instance), WorldEbs(world, instance, zone), WorldLease(world, instance)

    def _attend(self, instance: str) -> None:
        if instance == self.taken:
            self.is_notified = True
            raise WorkCancelledError(f"{instance} is being taken")

    def work(self, instance: str) -> None:
        """A checkpoint of the running training: once it is flushed it may never be lost."""
        host, line = WorldHost(self.world, instance), f"work {len(self.promised)} of {instance}"
        host.write(line)
        host.sync()
        self.promised.append(line)

    def live(self, instance: str, zone: str, *, release: bool) -> HeldVolume:
        """A whole life: boot, work, renew, work, and give back if ``release``."""
        executor = self.executor(instance, zone)
        held = executor.up()
        assert self.taken != instance, f"{instance} came up after its notice"
        missing = [p for p in self.promised if p not in WorldHost(self.world, instance).content()]
        assert not missing, f"{instance} works on a volume without {missing}"
        self.work(instance)
        ahead = self._ahead(instance, zone, held)
        ahead.poll()
        self.clock.sleep(50)  # a snapshot takes 40
        ahead.poll()
        executor.renew_if_due()
        self.work(instance)
        ahead.poll()
        ahead.close()
        if release:
            last = f"last words of {instance}"
            WorldHost(self.world, instance).write(last)  # to flush them is the unmount's part
            executor.down(held)
            self.promised.append(last)
        return held

    def damage(self) -> Outcome:
        """Look at what is really there, past all lag."""
        home = self.world.disks.get(self.world.home or "")
        content = home.durable if home and home.durable else ()
        lost = sum(p not in content for p in self.promised) + (home is None)
        disks = [disk for disk in self.world.disks.values() if disk.gone_at is None]
        volumes, copies = len(disks) - (home is not None), self.world.copies.values()
        whole = [copy for copy in copies if self.clock.monotonic() >= copy.ready_at]
        if home and home.tags["source"] and not whole:
            return Outcome(lost, volumes, f"{home.id} was moved, and no snapshot is kept")
        return Outcome(lost, volumes + max(len(copies) - 2, 0))


def _begin(start: Start, conditions: str, seed: int) -> Region:
    region = Region(conditions, seed)
    if start != "no volume":
        zone = ZONES[0] if start == "same zone" else ZONES[1]
        region.live("i-first", zone, release=True)
        region.clock.sleep(60)
    region.world.calls.clear()
    return region


def calls(start: Start, conditions: str) -> int:
    """Return how many API calls the undisturbed life of ``i-x`` makes."""
    region = _begin(start, conditions, seed=7)
    region.live("i-x", ZONES[0], release=True)
    return len(region.world.calls)


def cases() -> Iterator[Case]:
    for start in STARTS:
        for conditions in CONDITIONS:
            count = calls(start, conditions)
            for then in THENS:
                for at in range(count):
                    yield Case(start, conditions, then, at, "before")
                    if not then.startswith("is "):  # after a call is before the next
                        yield Case(start, conditions, then, at, "after")


def play(case: Case) -> Outcome:
    """Play one case to its end: the disturbance, what follows, and one more undisturbed boot."""
    region = _begin(case.start, case.conditions, seed=7)
    try:
        if case.then.startswith("is overtaken"):
            _overtake(region, case)
        elif case.then.startswith("is taken"):
            _take(region, case)
        else:
            _kill(region, case)
        region.clock.sleep(60)
        region.live("i-last", ZONES[0], release=True)
    except (AgentError, AssertionError) as error:
        return replace(region.damage(), error=f"{type(error).__name__}: {error}")
    return region.damage()


def _kill(region: Region, case: Case) -> None:
    def strike(instance: str, operation: str) -> None:
        if len(region.world.calls) == case.at + 1:
            raise KilledError(operation)

    setattr(region.world, case.side, strike)
    with contextlib.suppress(KilledError):
        region.live("i-x", ZONES[0], release=True)
    setattr(region.world, case.side, lambda instance, operation: None)
    match case.then:
        case "dies" | "dies, other zone":
            region.world.terminate("i-x")
            region.live("i-y", ZONES[case.then.endswith("other zone")], release=True)
        case "reboots":
            region.world.reboot("i-x")
            region.clock.sleep(50)
            region.live("i-x", ZONES[0], release=True)
        case "process restarts":
            region.live("i-x", ZONES[0], release=True)


def _overtake(region: Region, case: Case) -> None:
    """The process stands still at a call while another instance wants the job; then it goes on, unaware."""

    def strike(instance: str, operation: str) -> None:
        if instance == "i-x" and len(region.world.calls) == case.at + 1:
            region.world.before = lambda instance, operation: None
            region.clock.sleep(130)
            try:
                region.live("i-y", ZONES[case.then.endswith("other zone")], release=True)
            except LeaseLostError:
                raise
            except AgentError:
                pass  # i-x has the volume attached; i-y gave up, as it should

    region.world.before = strike
    with contextlib.suppress(AgentError):  # the lease is lost, or what it was about to use is gone
        region.live("i-x", ZONES[0], release=True)
    region.world.terminate("i-x")


def _take(region: Region, case: Case) -> None:
    """A notice arrives during a call. The next instance starts at once, while the interrupted one runs."""
    world = region.world

    def strike(instance: str, operation: str) -> None:
        if len(world.calls) == case.at + 1:
            region.taken = "i-x"

    world.before = strike
    with contextlib.suppress(WorkCancelledError):
        region.live("i-x", ZONES[0], release=True)
    world.before = lambda instance, operation: None
    assert world.holder is None, "the lease was not given back"
    if region.is_notified:
        late = {operation for _, operation in world.calls[case.at + 1 :]} - HARMLESS
        assert not late, f"after the notice: {late}"
        attached = [disk.id for disk in world.disks.values() if disk.instance is not None]
        # A description that lags may hide an attachment of seconds ago: it ends with the instance.
        assert not attached or world.lag, f"still attached: {attached}"
    assert not any(disk.mounted for disk in world.disks.values()), "still mounted"
    world.calls.clear()
    world.schedule_end("i-x", 90.0)
    region.live("i-y", ZONES[case.then.endswith("other zone")], release=True)


def soak(seed: int) -> Outcome:
    """A random history: lives in random zones, most killed or taken at a random call, in bad weather."""
    chance = random.Random(seed)
    region = Region("lag and throttled", seed)
    try:
        for life in range(6):
            instance, zone = f"i-{life}", chance.choice(ZONES)
            fatal, is_notice = chance.randrange(10, 120), chance.random() < 0.3
            region.world.calls.clear()

            def strike(caller: str, operation: str, fatal: int = fatal, is_notice: bool = is_notice) -> None:
                if len(region.world.calls) == fatal:
                    if not is_notice:
                        raise KilledError(operation)
                    region.taken = caller

            region.world.after = strike
            try:
                region.live(instance, zone, release=True)
            except (KilledError, WorkCancelledError):
                region.world.terminate(instance)
        region.world.after = lambda instance, operation: None
        for last in range(2):
            region.live(f"i-last-{last}", chance.choice(ZONES), release=True)
            region.clock.sleep(60)
    except (AgentError, AssertionError) as error:
        return replace(region.damage(), error=f"{type(error).__name__}: {error}")
    return region.damage()
