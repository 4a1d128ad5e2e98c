"""The age of the oldest waiting message, in a queue with long requests in work."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.queues.waiting_age import oldest_waiting

MINUTE = 60.0
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
