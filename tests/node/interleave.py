"""Two instances that want one job, interleaved call by call; either may stand still or die at any of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tests.node.configs import FakeClock
from tests.node.crash import ZONES, Outcome, Region
from tests.node.world import KilledError
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.machine.errors import AgentError

End = Literal["goes on", "dies"]
FIRST, SECOND, LAST = "i-x", "i-y", "i-last"
PLACES: tuple[tuple[str, str, str], ...] = (
    ("b", "a", "b"),
    ("b", "b", "b"),
    ("b", "a", "a"),
    ("a", "a", "b"),
    ("a", "b", "a"),
    ("a", "b", "b"),
)
"""Zones of the first, the second and the last; the home begins in ``a``."""
RANDOM_PLAYS = 2000
_LOOKS = {"describe_volumes", "describe_snapshots", "renew"}
_MOST_TURNS = 5000


@dataclass(frozen=True)
class Play:
    """The first runs to its point ``first``, the second to its point ``second``; there it goes on later or
    dies. Then the first runs to its end, or to ``again`` and then waits for the second's.
    """

    places: tuple[str, str, str]
    first: int
    second: int
    end: End
    again: int | None = None


@dataclass(frozen=True)
class RandomPlay:
    seed: int


class Line:
    """A line of execution that runs only between ``resume`` and its own ``pause`` or its end."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.wake, self.done, self._is_ended = 0.0, False, False
        self._body, self._go, self._back = body, threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def resume(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        assert self._back.acquire(timeout=TIMEOUT_SECONDS), "it neither pauses nor ends"

    def end(self) -> None:
        self._is_ended = True
        self.resume()

    def pause(self, wake: float) -> None:
        self.wake = wake
        self._back.release()
        self._go.acquire()
        if self._is_ended:
            raise KilledError

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_ended:
                self._body()
        finally:
            self.done = True
            self._back.release()


class Actor:
    """One instance's life on a thread of its own: of all of them exactly one runs at a time."""

    def __init__(self, stage: Stage, instance: str, zone: str) -> None:
        self.stage, self.instance, self.zone = stage, instance, zone
        self.trace: list[str] = []
        """What it called at each of its points."""
        self.stop_at: int | None = None
        self.dies = False
        self.error: BaseException | None = None
        self.task = Line(self._live)

    def _live(self) -> None:
        region = self.stage.region
        try:
            region.live(self.instance, self.zone, release=True)
        except (AgentError, KilledError):  # what it holds is free once it is gone
            region.world.terminate(self.instance)
        except AssertionError as error:
            self.error = error
            region.world.terminate(self.instance)

    @property
    def acts(self) -> list[int]:
        """Its points before calls that change something; of a row of the same calls the first."""
        calls = [*enumerate(zip(self.trace, ["", *self.trace], strict=False))]
        return [at for at, (call, before) in calls if call not in _LOOKS and call != before]

    def point(self, operation: str) -> None:
        chance = self.stage.chance
        if len(self.trace) == self.stop_at:
            self.stop_at = None
            if self.dies:
                raise KilledError(self.instance)
            self.task.pause(0.0)
        elif chance is not None and (drawn := chance.random()) < 0.12:
            if drawn < 0.003:
                raise KilledError(self.instance)
            long = drawn < 0.012
            self.task.pause(self.stage.now + (chance.uniform(100, 500) if long else chance.uniform(0, 3)))
        self.trace.append(operation)

    def resume(self) -> None:
        self.stage.reach(self.task.wake)
        self.stage.current = self
        self.task.resume()
        self.stage.current = None


class ActorsClock(FakeClock):
    """Time that passes for whoever runs: a sleep hands the baton on."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def sleep(self, seconds: float) -> None:
        if self._stage.current is None:
            super().sleep(seconds)
        else:
            self._stage.current.task.pause(self.monotonic() + max(seconds, 0.0))


class Stage:
    """A region in which a home lies in zone ``a``, and the actors who want it."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance = chance
        self.current: Actor | None = None
        self.region = Region("calm", 7, clock=ActorsClock(self))
        self.region.live("i-before", ZONES[0], release=True)
        self.region.clock.sleep(60)
        self.region.world.point = self._point

    @property
    def now(self) -> float:
        return self.region.clock.monotonic()

    def reach(self, moment: float) -> None:
        if moment > self.now:
            self.region.clock.advance(moment - self.now)
            self.region.world.settle()

    def _point(self, instance: str, operation: str) -> None:
        if self.current is not None:
            assert self.current.instance == instance
            self.current.point(operation)

    def finish(self, actors: list[Actor], zone: str) -> Outcome:
        """End who is left, let the last one boot undisturbed, and look at what is really there."""
        error = next((actor.error for actor in actors if actor.error), None)
        for actor in actors:
            if not actor.task.done:
                actor.task.end()
                self.region.world.terminate(actor.instance)
        try:
            if error:
                raise error
            self.region.clock.sleep(150)
            self.region.live(LAST, zone, release=True)
        except (AgentError, AssertionError) as found:
            return replace(self.region.damage(), error=f"{type(found).__name__}: {found}")
        return self.region.damage()


def _run(actor: Actor, until: int | None, end: End = "goes on") -> None:
    actor.stop_at, actor.dies = until, end == "dies"
    for _ in range(_MOST_TURNS):
        if actor.task.done or (until is not None and actor.stop_at is None):
            return
        actor.resume()
    raise AssertionError(f"{actor.instance} does not come to an end")


def play(case: Play) -> Outcome:
    stage = Stage()
    first, second = (
        Actor(stage, instance, zone) for instance, zone in zip((FIRST, SECOND), case.places[:2], strict=True)
    )
    _run(first, case.first)
    _run(second, case.second, case.end)
    if case.again is not None:
        _run(first, case.again)
        _run(second, None)
    _run(first, None)
    _run(second, None)
    return stage.finish([first, second], case.places[2])


def play_at_random(case: RandomPlay) -> Outcome:
    chance = random.Random(case.seed)
    stage = Stage(chance)
    actors = [Actor(stage, instance, chance.choice(ZONES)) for instance in (FIRST, SECOND, "i-z")]
    for actor in actors:
        actor.task.wake = stage.now + chance.uniform(0, 200)
    for _ in range(_MOST_TURNS):
        alive = [actor for actor in actors if not actor.task.done]
        if not alive:
            break
        due = [a for a in alive if a.task.wake <= stage.now] or [min(alive, key=lambda a: a.task.wake)]
        chance.choice(due).resume()
    return stage.finish(actors, chance.choice(ZONES))


def plays() -> Iterator[Play]:
    """Yield the systematic ones: every pair of acts, and a third of the first's for each."""
    for places in PLACES:
        alone = Actor(Stage(), FIRST, places[0])
        _run(alone, None)
        for first in alone.acts:
            stage = Stage()
            before, after = Actor(stage, FIRST, places[0]), Actor(stage, SECOND, places[1])
            _run(before, first)
            _run(after, None)
            before.task.end()  # else its thread waits to the end of the process
            for second in after.acts:
                yield Play(places, first, second, "dies")
                yield Play(places, first, second, "goes on")
                for again in alone.acts:
                    if again > first:
                        yield Play(places, first, second, "goes on", again)
