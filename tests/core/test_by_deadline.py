"""A job under a deadline, hour after hour through ``decide``: what it holds, what is bought, what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from contracts.registry.item import Progress
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory, dump, parse
from lambdas.core.capacity.policies.by_deadline import DEADLINE_LOST, PROGRESS_UNKNOWN, ByDeadline
from lambdas.core.deadline.record import JobRecord
from lambdas.core.model import (
    Alarm,
    Group,
    GroupRole,
    Instance,
    LaunchFailure,
    LaunchFailureKind,
    Observation,
    Pool,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
)
from tests.core.build import group as make_group
from tests.core.build import released

START = 1_000_000.0
HOUR = 3600.0
BOOT, MOVE = 180.0, 180.0
RATE = 0.1
"""Steps a second."""
POOL = Pool("g6.xlarge", "us-west-2a")


def never(at: float) -> bool:
    return False


def always(at: float) -> bool:
    return True


@dataclass
class World:
    """One job and its group, looked at each minute; times of ``spot`` etc. are seconds after the start.

    ``speed`` says which part of ``RATE`` the job makes on an instance (its number, from 1 on) at a time.
    """

    hours: float
    deadline_hours: float
    spot: Callable[[float], bool] = always
    sold: Callable[[float], bool] = always
    speed: Callable[[float, int], float] = lambda at, number: 1.0
    reports: bool = True
    price: float = 0.3
    now: float = START
    step: float = 0.0
    memory: Memory = field(default_factory=Memory)
    live: list[Instance] = field(default_factory=list)
    desired: dict[GroupRole, int] = field(default_factory=lambda: dict.fromkeys(GroupRole, 0))
    worker: str = ""
    works_at: float = 0.0
    began: float = 0.0
    number: int = 0
    last_report: tuple[float, int] = (0.0, 0)
    bought: dict[GroupRole, float] = field(default_factory=lambda: dict.fromkeys(GroupRole, 0.0))
    alarms: list[tuple[float, Alarm]] = field(default_factory=list)
    releases: list[tuple[float, str]] = field(default_factory=list)
    run: str = "r1"

    @property
    def steps(self) -> int:
        return round(self.hours * HOUR * RATE)

    @property
    def at(self) -> float:
        return self.now - START

    def play(self, hours: float) -> World:
        """Play so long, or until the job is done."""
        end = self.now + hours * HOUR
        while self.now < end and self.step < self.steps:
            self._minute()
        return self

    def said(self) -> list[str]:
        return [alarm.kind for _, alarm in self.alarms]

    def _minute(self) -> None:
        if not self.spot(self.at):
            self.live = [i for i in self.live if i.group_role is GroupRole.FALLBACK]
        self._launch()
        self._work()
        group = make_group(
            "job", 1, 2, break_before_make=True, deadline=START + self.deadline_hours * HOUR, run=self.run
        )
        decision = decide(self._seen(group), ByDeadline(), self.memory, self.now)
        self.memory = decision.memory
        if self.at % 1800 == 0:
            assert parse(dump(self.memory)) == self.memory
        for action in decision.actions:
            match action:
                case Alarm():
                    self.alarms.append((self.at, action))
                case SetDesired(side, capacity):
                    self.desired[side] = capacity
                case TerminateInstances(side, gone, _, slots):
                    self.desired[side] -= slots
                    self.live = [i for i in self.live if i.id not in gone]
                    self.releases += [(self.at, one) for one in gone]
        for side in GroupRole:
            self.bought[side] += sum(i.group_role is side for i in self.live) / 60
        assert sum(self.desired.values()) <= 2
        self.now += 60

    def _launch(self) -> None:
        for side, there in ((GroupRole.PRIMARY, self.spot), (GroupRole.FALLBACK, self.sold)):
            held = [i for i in self.live if i.group_role is side]
            if len(held) < self.desired[side] and there(self.at):
                self.number += 1
                market = PurchaseOption.SPOT if side is GroupRole.PRIMARY else PurchaseOption.ON_DEMAND
                self.live.append(Instance(f"i-{self.number}", POOL, market, side, self.now))

    def _work(self) -> None:
        up = [i for i in self.live if self.now - i.launched_at >= BOOT]
        if self.worker not in {i.id for i in up}:
            self.worker = up[0].id if up else ""
            waited = bool(up) and self.now - up[0].launched_at > BOOT
            self.works_at = self.began = self.now + (MOVE if waited else 0.0)
        elif self.now > self.works_at:
            pace = self.speed(self.at, int(self.worker.removeprefix("i-")))
            self.step = min(self.steps, self.step + 60 * RATE * pace)
            if pace:
                self.last_report = (self.now, int(self.step))

    def _seen(self, group: Group) -> Observation:
        seen = []
        for one in self.live:
            up = self.now - one.launched_at >= BOOT
            at_work = up and one.id == self.worker
            progress = None
            if at_work and self.reports and self.last_report[0] > self.began:
                measured = self.last_report[0] - self.began >= 600
                rate = RATE if measured else 0.0
                progress = Progress(
                    self.last_report[1], self.steps, self.last_report[0], self.began, rate, rate
                )
            seen.append(
                replace(
                    one,
                    ready_since=one.launched_at + BOOT if at_work else None,
                    is_standby=up and not at_work,
                    progress=progress,
                )
            )
        refusals = [
            LaunchFailure(side, LaunchFailureKind.CAPACITY, self.now, "InsufficientInstanceCapacity")
            for side in GroupRole
            if self.desired[side] > sum(i.group_role is side for i in self.live)
        ]
        return Observation(
            group,
            self.desired[GroupRole.PRIMARY],
            self.desired[GroupRole.FALLBACK],
            tuple(seen),
            tuple(refusals),
            spot_prices={str(POOL): self.price},
        )


def test_where_spot_stays_it_is_all_that_is_bought() -> None:
    world = World(4, 10).play(11)
    assert world.step == world.steps
    assert world.bought[GroupRole.FALLBACK] == 0
    assert world.alarms == []


def test_where_spot_never_comes_on_demand_makes_it_and_no_more() -> None:
    world = World(4, 10, spot=never).play(10)
    assert world.step == world.steps
    assert 4 <= world.bought[GroupRole.FALLBACK] < 4.5
    assert world.alarms == []


def test_spot_that_costs_more_than_on_demand_is_not_bought_but_waited_for_while_there_is_time() -> None:
    world = World(4, 12, price=1.1)
    world.play(0.5)
    assert (world.bought[GroupRole.PRIMARY], world.desired[GroupRole.FALLBACK]) == (0, 1)
    world.price = 0.3
    world.play(12)
    assert world.step == world.steps
    assert world.bought[GroupRole.FALLBACK] < 1


def test_on_demand_goes_back_to_spot_once_where_there_is_slack() -> None:
    world = World(6, 14, spot=lambda at: at >= 2 * HOUR).play(14)
    assert world.step == world.steps
    assert len(world.releases) == 1
    assert world.bought[GroupRole.FALLBACK] < 2.5


def test_what_has_no_slack_for_a_move_stays_on_demand_and_asks_for_no_spot() -> None:
    world = World(6, 8, spot=lambda at: at >= 2 * HOUR).play(8)
    assert world.step == world.steps
    assert world.releases == []
    assert world.bought[GroupRole.PRIMARY] < 0.2
    assert world.alarms == []


@pytest.mark.parametrize("minutes", [40, 90, 200])
def test_spot_that_comes_and_goes_never_makes_it_late(minutes: int) -> None:
    def flicker(at: float) -> bool:
        return at // (60 * minutes) % 2 == 0

    for deadline in (8, 14):
        world = World(6, deadline, spot=flicker).play(deadline)
        assert world.step == world.steps, (minutes, deadline)
        assert DEADLINE_LOST not in world.said()


def test_a_refusal_of_on_demand_is_waited_out_on_what_spot_there_is() -> None:
    world = World(4, 9, spot=lambda at: at > HOUR, sold=lambda at: at > 2 * HOUR).play(9)
    assert world.step == world.steps
    assert world.memory.job.launch_delays.count >= 0
    assert DEADLINE_LOST not in world.said()


def test_what_a_refusal_withholds_is_tried_until_an_operator_has_ended_its_cause() -> None:
    """AWS shows the refusal for weeks: only a launch ends it, so one must be tried while there is time."""

    def is_allowed(at: float) -> bool:
        return not HOUR <= at < 1.5 * HOUR

    world, refused_at = World(4, 7, spot=is_allowed, sold=is_allowed), [0.0]

    def seen(group: Group) -> Observation:
        if not is_allowed(world.at) and world.desired[GroupRole.PRIMARY]:
            refused_at[0] = world.now
        kind, text = LaunchFailureKind.PERMISSION, "UnauthorizedOperation"
        failure = LaunchFailure(GroupRole.PRIMARY, kind, refused_at[0], text)
        return replace(World._seen(world, group), launch_failures=(failure,) if refused_at[0] else ())

    world._seen = seen  # type: ignore[method-assign]
    world.play(5)
    assert world.step == world.steps
    assert DEADLINE_LOST not in world.said()


def test_a_job_that_stalls_on_spot_is_bought_on_demand_in_time() -> None:
    """It hangs for ever where it first ran, and goes on wherever it is started anew."""
    world = World(4, 12, speed=lambda at, number: 0.0 if number == 1 and at > HOUR else 1.0).play(12)
    assert world.step == world.steps
    assert world.bought[GroupRole.FALLBACK] > 2
    assert DEADLINE_LOST not in world.said()


def test_a_job_that_stalls_wherever_it_runs_is_declared_lost_as_soon_as_it_is() -> None:
    world = World(4, 8, speed=lambda at, number: 0.0 if at > HOUR else 1.0).play(9)
    assert world.said() == [DEADLINE_LOST]
    [(at, alarm)] = world.alarms
    left = (world.steps - int(world.step)) / RATE
    assert 8 * HOUR - left <= at <= 8 * HOUR - left + 120
    assert "h of time remain" in alarm.reason
    # As fast as it can: with on-demand, which nothing hands back.
    assert world.desired[GroupRole.FALLBACK] == 1


def test_a_deadline_that_was_never_feasible_raises_an_alarm_once_measured() -> None:
    world = World(8, 6).play(7)
    assert world.said() == [DEADLINE_LOST]
    assert world.alarms[0][0] < 1200


def test_a_deadline_in_the_past_raises_an_alarm_at_the_first_run() -> None:
    world = World(8, -1).play(1)
    assert world.said()[0] == DEADLINE_LOST
    assert world.alarms[0][0] == 0


def test_the_alarm_of_a_deadline_that_is_met_after_all_is_resolved() -> None:
    world = World(4, 6, speed=lambda at, number: 0.0 if HOUR < at < 4 * HOUR else 2.0).play(6)
    assert world.said() == [DEADLINE_LOST]
    assert world.step == world.steps
    assert DEADLINE_LOST not in world.memory.active_alarms


def test_a_job_without_progress_has_no_slack_and_raises_an_alarm() -> None:
    world = World(4, 20, reports=False).play(2)
    assert world.said() == [PROGRESS_UNKNOWN]
    assert world.alarms[0][0] >= 1800
    assert world.desired == {GroupRole.PRIMARY: 0, GroupRole.FALLBACK: 1}
    world.reports = True
    world.play(1)
    assert world.memory.active_alarms == frozenset()
    assert world.desired[GroupRole.PRIMARY] == 1


def test_a_script_that_resumes_from_an_older_checkpoint_is_as_far_as_that() -> None:
    world = World(8, 16, spot=lambda at: not HOUR < at < HOUR + 600).play(0.9)
    before = world.memory.job.step
    world.step -= 240
    world.play(0.7)
    assert world.memory.job.step < before + 60
    assert world.memory.job.max_lost_seconds > 0


def test_another_revision_begins_at_step_0_and_keeps_what_was_met() -> None:
    world = World(4, 20, spot=lambda at: at % (2 * HOUR) > 600).play(3.5)
    met = world.memory.job
    assert met.step > 0
    assert met.restart_overheads.count >= 1
    world.run, world.last_report, world.step, world.reports = "r2", (0.0, 0), 0.0, False
    world.play(1 / 60)
    now = world.memory.job
    assert (now.step, now.steps, now.rate) == (0, 0, 0.0)
    assert now.restart_overheads == met.restart_overheads


def test_the_change_over_is_learned_from_the_order_to_the_first_step() -> None:
    world = World(6, 14, spot=lambda at: at >= 2 * HOUR).play(14)
    seen = world.memory.job.restart_overheads
    assert seen.count == 2
    assert seen.minimum == BOOT
    assert BOOT + MOVE <= seen.maximum <= BOOT + MOVE + 60


def test_without_a_deadline_nothing_is_remembered_of_a_job() -> None:
    world = World(4, 10).play(1)
    assert world.memory.job != JobRecord()
    seen = world._seen(make_group("job", 1, 2, break_before_make=True))
    assert decide(seen, ByDeadline(), world.memory, world.now).memory.job == JobRecord()


def test_a_finished_job_is_terminated() -> None:
    world = World(4, 10).play(1)
    group = make_group("job", 0, 2, break_before_make=True, deadline=START + HOUR, run="r1")
    assert released(decide(world._seen(group), ByDeadline(), world.memory, world.now).actions)
