"""The age of the oldest message and of the oldest waiting one, from totals that are polled each minute."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.core.queues.history import QueueCounts, QueueHistory, dumps, observe, parse
from lambdas.core.queues.waiting_age import oldest_waiting

MINUTE = 60.0


@dataclass
class SimulatedQueue:
    """A queue that knows when each message was published."""

    ready: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)
    published: int = 0
    acknowledged: int = 0

    def publish(self, at: float, count: int = 1) -> None:
        self.ready += [at] * count
        self.published += count

    def deliver(self, count: int) -> None:
        self.in_flight += self.ready[:count]
        del self.ready[:count]

    def requeue(self, random: Random) -> None:
        if self.in_flight:
            self.ready.insert(
                random.choice((0, len(self.ready))), self.in_flight.pop(random.randrange(len(self.in_flight)))
            )

    def acknowledge(self, count: int) -> None:
        self.acknowledged += len(self.in_flight[:count])
        del self.in_flight[:count]

    def expire(self, count: int) -> None:
        del self.ready[:count]

    def counts(self) -> QueueCounts:
        return QueueCounts(len(self.ready), len(self.in_flight), 1, self.published, self.acknowledged)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from((0.2, 1.0, 3.0)))
def test_the_age_is_never_above_that_of_the_oldest_message(seed: int, load: float) -> None:
    """In whatever order messages are delivered, requeued and expired."""
    random, queue, history = Random(seed), SimulatedQueue(), QueueHistory()
    for minute in range(40):
        at = minute * MINUTE
        for second in range(0, 60, 10):
            queue.publish(at + second, random.choice((0, 0, 1, int(20 * load))))
            queue.deliver(random.randrange(12))
            queue.acknowledge(random.randrange(12))
            for _ in range(random.randrange(3)):
                queue.requeue(random)
            queue.expire(random.choice((0, 0, 0, 3)))
        state, history = observe(parse(dumps(history)), queue.counts(), at + MINUTE)
        if state is not None:
            oldest = min(queue.ready, default=at + MINUTE)
            assert 0 <= state.oldest_seconds <= at + MINUTE - oldest
            assert (state.ready, state.in_flight) == (len(queue.ready), len(queue.in_flight))


@pytest.mark.parametrize("rate", [1, 7])
def test_with_a_constant_backlog_the_age_is_accurate_to_a_poll_and_a_tenth(rate: int) -> None:
    queue, history = SimulatedQueue(), QueueHistory()
    for minute in range(24 * 60):
        at = minute * MINUTE
        queue.publish(at + 30, rate)
        if minute > 60:  # as many leave as arrive, but an hour's backlog stays
            queue.deliver(rate)
            queue.acknowledge(rate)
        state, history = observe(history, queue.counts(), at + MINUTE)
        if state is not None:
            waits = at + MINUTE - queue.ready[0]
            assert waits - MINUTE - 0.1 * waits - 30 <= state.oldest_seconds <= waits
    assert len(dumps(history)) < 4_000


def test_days_without_delivery_are_stored_in_few_marks() -> None:
    queue, history = SimulatedQueue(), QueueHistory()
    queue.publish(0.0, 5)
    for minute in range(1, 3 * 24 * 60):
        queue.publish(minute * MINUTE)
        _, history = observe(history, queue.counts(), minute * MINUTE)
    state, history = observe(history, queue.counts(), 3 * 24 * 60 * MINUTE)
    assert state.oldest_seconds == pytest.approx(3 * 86_400, rel=0.01)
    assert len(history.marks) <= 120


def test_rates_cover_the_time_between_two_polls() -> None:
    queue = SimulatedQueue()
    _, history = observe(QueueHistory(), queue.counts(), 0.0)
    queue.publish(10.0, 90)
    queue.deliver(60)
    queue.acknowledge(30)
    state, _ = observe(history, queue.counts(), MINUTE)
    assert (state.publish_rate, state.ack_rate, state.consumers) == (1.5, 0.5, 1)


def test_the_first_poll_and_the_first_after_a_broker_restart_have_no_state() -> None:
    queue = SimulatedQueue()
    queue.publish(0.0, 100)
    state, history = observe(QueueHistory(), queue.counts(), MINUTE)
    assert state is None
    state, history = observe(history, queue.counts(), 2 * MINUTE)
    assert state is not None
    started = QueueCounts(100, 0, 1, 3, 0)  # totals restart from 0, messages remain
    state, history = observe(history, started, 3 * MINUTE)
    assert state is None
    state, _ = observe(history, started, 4 * MINUTE)
    assert state.oldest_seconds == MINUTE


def test_a_burst_that_reaches_the_length_before_the_totals_is_not_old() -> None:
    queue, history = SimulatedQueue(), QueueHistory()
    for minute in range(60):
        queue.publish(minute * MINUTE, 1_000)
        queue.deliver(1_000)
        queue.acknowledge(1_000 if minute > 20 else 0)  # 20 minutes of messages are in flight
        _, history = observe(history, queue.counts(), minute * MINUTE)
    late = QueueCounts(10_000, len(queue.in_flight), 1, queue.published, queue.acknowledged)
    state, _ = observe(history, late, 60 * MINUTE)
    assert state.oldest_seconds <= MINUTE


def test_an_empty_queue_has_age_0() -> None:
    queue = SimulatedQueue()
    _, history = observe(QueueHistory(), queue.counts(), 0.0)
    queue.publish(1.0, 9)
    _, history = observe(history, queue.counts(), MINUTE)
    queue.deliver(9)
    state, history = observe(history, queue.counts(), 2 * MINUTE)
    assert (state.oldest_seconds, state.in_flight) == (0.0, 9)
    queue.acknowledge(9)
    _, history = observe(history, queue.counts(), 3 * MINUTE)
    assert len(history.marks) == 1


def test_a_clock_that_is_set_back_resets_the_history() -> None:
    _, history = observe(QueueHistory(), QueueCounts(1, 0, 0, 1, 0), 100.0)
    assert observe(history, QueueCounts(1, 0, 0, 2, 0), 100.0)[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[-1]",
        '["1"]',
        '[1,"a",0,0,[]]',
        "[1,1,0,0,[[1]]]",
        "[NaN,1,0,0,[]]",
        "[1,1,0,0,[[Infinity,1]]]",
    ],
)
def test_a_malformed_history_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^history of a queue(:| is not | must )"):
        parse(text)


@pytest.mark.parametrize("text", ["[1]", "[1,0,0,0,[],7]"])
def test_a_history_of_another_version_is_read(text: str) -> None:
    assert parse(text) == QueueHistory(1.0)


LAG_MINUTES = 2
"""Minutes that the counts of sent messages are late."""


def observed(arrivals: list[int], workers: int, minutes_of_work: int) -> list[tuple[float, float, float]]:
    """Play a queue whose messages are received in order; yield true age, SQS's metric, and the estimate."""
    waiting: deque[float] = deque()
    in_work: list[tuple[float, float]] = []
    sent: dict[float, float] = {}
    previous: tuple[float, float] | None = None
    found = []
    for number, count in enumerate(arrivals):
        began, now = number * MINUTE, (number + 1) * MINUTE
        sent[began] = count
        waiting.extend([began + MINUTE / 2] * count)
        in_work = [one for one in in_work if one[1] > now]
        while waiting and len(in_work) < workers:
            in_work.append((waiting.popleft(), now + minutes_of_work * MINUTE))
        undeleted = [*waiting, *(arrived for arrived, _ in in_work)]
        metric = now - min(undeleted) if undeleted else 0.0
        counted = {minute: one for minute, one in sent.items() if minute < now - LAG_MINUTES * MINUTE}
        estimate = oldest_waiting(len(waiting), len(in_work), metric, counted, now, previous)
        previous = now, estimate
        found.append((now - waiting[0] if waiting else 0.0, metric, estimate))
    return found


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 8), st.integers(1, 60))
def test_it_is_between_the_true_age_and_the_metric(arrivals: list[int], workers: int, minutes: int) -> None:
    for true_age, metric, estimate in observed(arrivals, workers, minutes):
        assert true_age <= estimate <= max(metric, true_age)


def test_with_long_requests_it_is_the_waiting_time_and_not_the_time_in_work() -> None:
    # Ten workers, requests of an hour, five every 29 minutes: some wait for minutes.
    played = observed([5 if minute % 29 == 0 else 0 for minute in range(300)], 10, 60)[120:]
    waited = [one for one in played if one[0] > 0]
    assert waited
    assert all(metric >= 3000 for _, metric, _ in waited)
    assert all(estimate <= true_age + (LAG_MINUTES + 1) * MINUTE for true_age, _, estimate in waited)


def test_an_empty_queue_has_no_age_and_an_idle_one_has_the_metrics() -> None:
    assert oldest_waiting(0, 5, 3600.0, {}, 600.0, None) == 0.0
    assert oldest_waiting(5, 0, 3600.0, {540.0: 9}, 600.0, (540.0, 0.0)) == 3600.0
    assert oldest_waiting(5, 1, 3600.0, {}, 600.0, None) == 3600.0
