"""Scaling and health by the requests at a service's proxies: zero workers, unknown requests, and refusals."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.registry import http_state
from contracts.registry.http_state import HttpState, WorkerTraffic
from lambdas.aws.scaler import ScalerOutcome
from lambdas.core.scaling.model import LoadObservation, Reason
from lambdas.core.scaling.queue_source import http_source
from lambdas.handlers import scaler as handler
from tests.fakes.aws import GROUP, ROOT
from tests.scaling.test_decide import BOUNDS, SERVED, ZERO, Passes
from tests.scaling.test_scaler import SETTINGS, ScalerAws, reasons


def requests(
    now: float, rate: float = 4.0, waiting: int = 0, unreadable: int = 0, refused: float = 0.0
) -> HttpState:
    return HttpState(now - 20, waiting, 4 if rate else 0, 0.0, rate, rate - refused, refused, 2, unreadable)


class HttpPasses(Passes):
    """Passes over the requests at two proxies; changes are those of ``requests``."""

    def observe(self, *, is_written: bool = True, **changes: Any) -> LoadObservation:
        source = http_source(requests(self.now, **changes) if is_written else None)
        load = source.load(self.now)
        ready = {"g6.xlarge": self.target} if self.target else {}
        served = SERVED if ready and load is not None and load.arrival_rate else {}
        return LoadObservation(self.now, self.target, load, ready, 0, served, 180, unknown=source.unknown)


def test_a_refused_request_wakes_a_service_without_workers() -> None:
    service = HttpPasses(ZERO, target=0)
    [*_, idle] = service.run(20, rate=0.0)
    assert (idle.target, idle.reasons) == (0, (Reason.IDLE,))
    [refused] = service.run(rate=1 / 60, refused=1 / 60)
    assert (refused.target, refused.reasons) == (1, (Reason.WAKE,))


def test_a_service_with_requests_at_an_unknown_proxy_is_not_idle() -> None:
    decisions = HttpPasses(ZERO, target=3).run(60, rate=0.0, unreadable=1)
    assert {decision.target for decision in decisions} == {3}


def test_what_is_known_of_a_rising_load_scales_out_although_a_proxy_is_unknown() -> None:
    steady = HttpPasses().after(30)
    known, unknown = (copy(steady).run(waiting=400, unreadable=one)[0] for one in (0, 1))
    assert unknown.target == known.target > steady.target
    assert unknown.reasons == (Reason.HTTP_UNKNOWN,)


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.integers(0, 500), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_unknown_requests_never_lower_the_target_and_raise_an_alarm(
    minutes: list[tuple[float, int, int, bool]],
) -> None:
    service = HttpPasses(ZERO)
    for rate, waiting, unreadable, is_written in minutes:
        before = service.target
        [decision] = service.run(rate=rate, waiting=waiting, unreadable=unreadable, is_written=is_written)
        if unreadable or not is_written:
            assert decision.target >= before
            assert Reason.HTTP_UNKNOWN in decision.reasons
            assert decision.is_alarm


def test_nothing_is_learned_from_what_is_assumed() -> None:
    service = HttpPasses().after(30)
    memory, service.now = service.memory, service.now + 60
    assumed = service.observe(rate=40.0, waiting=900, unreadable=1, refused=1.0)
    after = memory.update(assumed, BOUNDS.wait_seconds)
    assert after.arrivals[-1] == (service.now, 40.0)
    for name in ("profile", "dispersion", "staffed_wait"):
        assert getattr(after, name) == getattr(memory, name)


def test_a_refused_request_is_a_late_one() -> None:
    service = HttpPasses().after(30)
    memory, service.now = service.memory, service.now + 60
    factors = [
        memory.update(service.observe(refused=refused), BOUNDS.wait_seconds).staffed_wait.factor
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
