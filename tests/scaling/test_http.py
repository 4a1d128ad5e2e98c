"""Scaling and health by the requests at a service's proxies: zero workers, unknown requests, and refusals."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.group.scaling_settings import Bounds
from contracts.registry import http_state
from contracts.registry.http_state import HttpState, WorkerTraffic
from lambdas.aws.scaler import ScalerOutcome
from lambdas.core.scaling import decide
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.model import LoadObservation, Reason
from lambdas.core.scaling.queue_source import http_source
from lambdas.handlers import scaler as handler
from tests.fakes.aws import GROUP, ROOT
from tests.scaling.test_decide import BOUNDS, MONDAY, SERVED
from tests.scaling.test_scaler import SETTINGS, ScalerAws, reasons

ZERO = replace(BOUNDS, minimum=0)


def requests(
    now: float, rate: float = 4.0, waiting: int = 0, unreadable: int = 0, refused: float = 0.0
) -> HttpState:
    return HttpState(now - 20, waiting, 4 if rate else 0, 0.0, rate, rate - refused, refused, 2, unreadable)


def observation(state: HttpState | None, now: float, target: int = 20, ready: int = 20) -> LoadObservation:
    source = http_source(state)
    load = source.load(now)
    return LoadObservation(
        now,
        target,
        load,
        {"g6.xlarge": ready} if ready else {},
        0,
        SERVED if ready and load is not None and load.arrival_rate else {},
        180,
        unknown=source.unknown,
    )


def learned(bounds: Bounds = BOUNDS, minutes: int = 30) -> tuple[ScalingMemory, int, float]:
    """Return memory and target after some minutes of a steady load, and the time of the next pass."""
    memory, target = ScalingMemory(), 20
    for minute in range(minutes):
        now = MONDAY + minute * 60
        decision = decide(observation(requests(now), now, target, target), bounds, memory)
        memory, target = decision.memory, decision.target
    return memory, target, now + 60


def test_a_refused_request_wakes_a_service_without_workers() -> None:
    memory, now = ScalingMemory(), MONDAY
    for _ in range(20):
        decision = decide(observation(requests(now, 0.0), now, 0, 0), ZERO, memory)
        memory, now = decision.memory, now + 60
    assert (decision.target, decision.reasons) == (0, (Reason.IDLE,))
    refused = requests(now, 1 / 60, refused=1 / 60)
    decision = decide(observation(refused, now, 0, 0), ZERO, memory)
    assert (decision.target, decision.reasons) == (1, (Reason.WAKE,))


def test_a_service_with_requests_at_an_unknown_proxy_is_not_idle() -> None:
    memory, now = ScalingMemory(), MONDAY
    for _ in range(60):
        unknown = requests(now, 0.0, unreadable=1)
        decision = decide(observation(unknown, now, 3, 3), ZERO, memory)
        memory, now = decision.memory, now + 60
        assert decision.target == 3
        assert Reason.HTTP_UNKNOWN in decision.reasons
        assert decision.is_alarm


def test_what_is_known_of_a_rising_load_scales_out_although_a_proxy_is_unknown() -> None:
    memory, target, now = learned()
    known = decide(observation(requests(now, 4.0, 400), now, target, target), BOUNDS, memory)
    unknown = decide(observation(requests(now, 4.0, 400, 1), now, target, target), BOUNDS, memory)
    assert unknown.target == known.target > target
    assert unknown.reasons == (Reason.HTTP_UNKNOWN,)


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.integers(0, 500), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_unknown_requests_never_lower_the_target(minutes: list[tuple[float, int, int, bool]]) -> None:
    memory, target = ScalingMemory(), 20
    for minute, (rate, waiting, unreadable, is_written) in enumerate(minutes):
        now = MONDAY + minute * 60
        state = requests(now, rate, waiting, unreadable) if is_written else None
        decision = decide(observation(state, now, target, target), ZERO, memory)
        if unreadable or not is_written:
            assert decision.target >= target
            assert Reason.HTTP_UNKNOWN in decision.reasons
        memory, target = decision.memory, decision.target


def test_nothing_is_learned_from_what_is_assumed() -> None:
    memory, target, now = learned()
    assumed = observation(requests(now, 40.0, 900, 1, refused=1.0), now, target, target)
    after = memory.update(assumed, BOUNDS.wait_seconds)
    assert after.arrivals[-1] == (now, 40.0)
    for name in ("profile", "dispersion", "staffed_wait"):
        assert getattr(after, name) == getattr(memory, name)


def test_a_refused_request_is_a_late_one() -> None:
    memory, target, now = learned()
    factors = [
        memory.update(
            observation(requests(now, 4.0, refused=refused), now, target, target), BOUNDS.wait_seconds
        ).staffed_wait.factor
        for refused in (0.0, 0.1)
    ]
    assert factors[1] < memory.staffed_wait.factor < factors[0]


@dataclass
class HttpAws(ScalerAws):
    """A group of HTTP workers, which report no requests; the queue watcher writes those at the proxies."""

    has_queue_state: bool = False
    unreadable: int = 0
    is_written: bool = True

    def minute(self) -> ScalerOutcome:
        config = json.loads(self.parameters[f"{ROOT}/{GROUP}/config"])
        self.set(GROUP, config=json.dumps({**config, "httpConcurrency": 8}))
        if self.is_written:
            self.write(self.now + 60)
        return super().minute()

    def send_heartbeats(self, excluded: frozenset[str] = frozenset()) -> None:
        super().send_heartbeats(excluded)
        for rows in self.rows.values():
            for row in rows.values():
                if "pulse" in row:
                    silent = {"at": {"N": "0"}, "done": {"N": "0"}, "rate": {"N": "0"}}
                    row["pulse"]["M"] |= silent

    def write(self, now: float) -> None:
        """Write the requests at the proxies: a busy worker has eight and ends half a request a second."""
        workers = [row for rows in self.rows.values() for row in rows.values() if "pulse" in row]
        rate = self.load / len(workers)
        traffic = tuple(
            WorkerTraffic(
                row["instance"]["S"],
                int(row["worker"]["S"].rpartition("/")[2]),
                float(row["since"]["N"]),
                *(100, 0, 300.0, rate, 0.0, min(1.0, rate / 0.5), 8 * min(1.0, rate / 0.5)),
            )
            for row in workers
        )
        state = HttpState(
            now - 20, self.waiting_requests, 4, 0.0, self.load, self.load, 0.0, 2, self.unreadable, traffic
        )
        self.rows[names.queue_partition(GROUP)] = {"http": http_state.dump(GROUP, state)}


def http_service() -> HttpAws:
    aws = HttpAws()
    aws.create_group(8)
    return aws


def test_the_scaler_reads_the_proxies_requests_and_their_workers() -> None:
    aws = http_service()
    outcome = aws.minutes(15)
    assert outcome.decision is not None
    assert outcome.decision.expected_rate == pytest.approx(2.0)
    assert outcome.decision.worker_rate == pytest.approx(0.5, rel=0.03)
    assert aws.target < 8
    assert outcome.read_errors == ()
    aws.calls.clear()
    aws.minute()
    assert aws.calls["batch_get_item"] == 3  # the rows of queue, proxies and workers, the two memories


def test_while_a_proxy_is_unknown_the_target_stays_and_an_alarm_says_so() -> None:
    aws = http_service()
    aws.unreadable = 1
    outcome = aws.minutes(30)
    assert aws.target == 8
    assert Reason.HTTP_UNKNOWN in reasons(outcome)
    assert handler.gauges(outcome, frozenset(reasons(outcome)))[names.METRIC_SCALING_LOAD_UNKNOWN] == 1


@pytest.mark.parametrize("is_malformed", [True, False])
def test_without_the_proxies_requests_the_load_is_unknown(is_malformed: bool) -> None:
    aws = http_service()
    aws.is_written = False
    if is_malformed:
        aws.rows[names.queue_partition(GROUP)] = {"http": {"waiting": {"S": "many"}}}
    outcome = aws.minutes(30)
    assert aws.target == 8
    assert reasons(outcome) == {Reason.HTTP_UNKNOWN}
    assert any("malformed item of a service's proxies" in e for e in outcome.read_errors) is is_malformed


def test_a_queue_is_not_taken_for_the_proxies_requests() -> None:
    aws = http_service()
    aws.is_written, aws.has_queue_state = False, True
    assert reasons(aws.minutes(3)) == {Reason.HTTP_UNKNOWN}
    assert SETTINGS.log is None
