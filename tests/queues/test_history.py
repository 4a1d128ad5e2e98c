"""How long the oldest request waits at least, told from totals that a broker looks up each minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.registry.queue_state import Backlog
from lambdas.core.queues.history import Counts, QueueHistory, dumps, look, parse

MINUTE = 60.0


@dataclass
class Queue:
    """A queue that knows when each of its messages came."""

    ready: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)
    published: int = 0
    ended: int = 0

    def publish(self, at: float, count: int = 1) -> None:
        self.ready += [at] * count
        self.published += count

    def take(self, count: int) -> None:
        self.taken += self.ready[:count]
        del self.ready[:count]

    def give_back(self, random: Random) -> None:
        if self.taken:
            self.ready.insert(
                random.choice((0, len(self.ready))), self.taken.pop(random.randrange(len(self.taken)))
            )

    def end(self, count: int) -> None:
        self.ended += len(self.taken[:count])
        del self.taken[:count]

    def expire(self, count: int) -> None:
        del self.ready[:count]

    def counts(self) -> Counts:
        return Counts(len(self.ready), len(self.taken), 1, self.published, self.ended)


def seen(past: QueueHistory, queue: Queue, at: float) -> tuple[Backlog, QueueHistory]:
    backlog, history = look(past, queue.counts(), at)
    assert backlog is not None
    return backlog, history


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from((0.2, 1.0, 3.0)))
def test_it_never_says_that_a_request_waits_longer_than_the_oldest_does(seed: int, load: float) -> None:
    """In whatever order messages are taken, given back and thrown away."""
    random, queue, history = Random(seed), Queue(), QueueHistory()
    for minute in range(40):
        at = minute * MINUTE
        for second in range(0, 60, 10):
            queue.publish(at + second, random.choice((0, 0, 1, int(20 * load))))
            queue.take(random.randrange(12))
            queue.end(random.randrange(12))
            for _ in range(random.randrange(3)):
                queue.give_back(random)
            queue.expire(random.choice((0, 0, 0, 3)))
        backlog, history = look(parse(dumps(history)), queue.counts(), at + MINUTE)
        if backlog is not None:
            oldest = min(queue.ready, default=at + MINUTE)
            assert 0 <= backlog.oldest <= at + MINUTE - oldest
            assert (backlog.ready, backlog.taken) == (len(queue.ready), len(queue.taken))


@pytest.mark.parametrize("rate", [1, 7])
def test_in_a_queue_that_stands_it_is_right_to_a_look_and_a_tenth(rate: int) -> None:
    queue, history = Queue(), QueueHistory()
    for minute in range(24 * 60):
        at = minute * MINUTE
        queue.publish(at + 30, rate)
        if minute > 60:  # what comes goes, but an hour's work stays
            queue.take(rate)
            queue.end(rate)
        backlog, history = look(history, queue.counts(), at + MINUTE)
        if backlog is not None:
            waits = at + MINUTE - queue.ready[0]
            assert waits - MINUTE - 0.1 * waits - 30 <= backlog.oldest <= waits
    assert len(dumps(history)) < 4_000


def test_days_of_standing_still_are_remembered_in_few_looks() -> None:
    queue, history = Queue(), QueueHistory()
    queue.publish(0.0, 5)
    for minute in range(1, 3 * 24 * 60):
        queue.publish(minute * MINUTE)
        _, history = look(history, queue.counts(), minute * MINUTE)
    backlog, history = seen(history, queue, 3 * 24 * 60 * MINUTE)
    assert backlog.oldest == pytest.approx(3 * 86_400, rel=0.01)
    assert len(history.marks) <= 120


def test_rates_are_of_the_time_between_two_looks() -> None:
    queue = Queue()
    _, history = look(QueueHistory(), queue.counts(), 0.0)
    queue.publish(10.0, 90)
    queue.take(60)
    queue.end(30)
    backlog, _ = seen(history, queue, MINUTE)
    assert (backlog.arriving, backlog.leaving, backlog.readers) == (1.5, 0.5, 1)


def test_a_first_look_and_one_after_the_brokers_start_say_nothing() -> None:
    queue = Queue()
    queue.publish(0.0, 100)
    backlog, history = look(QueueHistory(), queue.counts(), MINUTE)
    assert backlog is None
    _, history = seen(history, queue, 2 * MINUTE)
    started = Counts(100, 0, 1, 3, 0)  # counts from nothing, and still has all of them
    backlog, history = look(history, started, 3 * MINUTE)
    assert backlog is None
    backlog, _ = look(history, started, 4 * MINUTE)
    assert backlog is not None
    assert backlog.oldest == MINUTE


def test_a_burst_that_is_in_the_length_before_it_is_in_the_totals_is_not_old() -> None:
    queue, history = Queue(), QueueHistory()
    for minute in range(60):
        queue.publish(minute * MINUTE, 1_000)
        queue.take(1_000)
        queue.end(1_000 if minute > 20 else 0)  # workers hold 20 minutes' worth
        _, history = look(history, queue.counts(), minute * MINUTE)
    late = Counts(10_000, len(queue.taken), 1, queue.published, queue.ended)
    backlog, _ = look(history, late, 60 * MINUTE)
    assert backlog is not None
    assert backlog.oldest <= MINUTE


def test_an_empty_queue_waits_for_nothing() -> None:
    queue = Queue()
    _, history = look(QueueHistory(), queue.counts(), 0.0)
    queue.publish(1.0, 9)
    _, history = seen(history, queue, MINUTE)
    queue.take(9)
    backlog, history = seen(history, queue, 2 * MINUTE)
    assert (backlog.oldest, backlog.taken) == (0.0, 9)
    queue.end(9)
    _, history = seen(history, queue, 3 * MINUTE)
    assert len(history.marks) == 1


def test_a_clock_that_goes_back_begins_anew() -> None:
    _, history = look(QueueHistory(), Counts(1, 0, 0, 1, 0), 100.0)
    assert look(history, Counts(1, 0, 0, 2, 0), 100.0)[0] is None


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[1,"a",0,0,[]]', "[1,1,0,0,[[1]]]", "[NaN,1,0,0,[]]", "[1,1,0,0,[[Infinity,1]]]"],
)
def test_a_history_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed history"):
        parse(text)
