"""Requests over all proxies that restart, are replaced or cannot be read, and reports from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.registry.batches import BatchRow
from contracts.registry.http_state import HttpState, WorkerTraffic
from contracts.registry.item import Worker
from contracts.registry.proxy_state import STALE_SECONDS, ProxyState, WorkerRequests
from contracts.registry.worker_report import WorkerReport
from lambdas.core.queues import proxies
from lambdas.core.queues.proxies import NEW_SECONDS, ProxyHistory, ProxyReading, observe
from lambdas.core.queues.worker_requests import batches, with_requests
from lambdas.core.scaling.batches import BatchesDone, BatchTime, BatchTimes
from lambdas.core.scaling.throughput import Throughput

START = 1_800_000_000.0
WORKER = ("i-0123456789abcdef0", 0)


@dataclass
class Proxy:
    """A proxy that counts; ``lag`` is how long ago it wrote its item."""

    started_at: float
    launched_at: float
    lag: float = 5.0
    arrived: int = 0
    refused: int = 0
    waiting: int = 0
    worker: WorkerRequests | None = None
    is_readable: bool = True
    is_listed: bool = True

    def reading(self, now: float) -> ProxyReading:
        state = ProxyState(
            observed_at=now - self.lag,
            started_at=self.started_at,
            waiting=self.waiting,
            in_flight=0,
            oldest_seconds=0.0,
            arrived=self.arrived,
            ended=self.arrived - self.refused,
            refused=self.refused,
            workers=() if self.worker is None else (self.worker,),
        )
        return ProxyReading(state if self.is_readable else None, self.launched_at if self.is_listed else None)


@dataclass
class Service:
    """A service with proxies, polled once a minute; its history is stored and read in between."""

    now: float = START
    proxies: dict[str, Proxy] = field(default_factory=dict)
    history: ProxyHistory = field(default_factory=ProxyHistory)
    since: float = START - 3600

    def add(self, *names: str, age: float = 86_400.0) -> None:
        for name in names:
            self.proxies[name] = Proxy(self.now - age, self.now - age)

    def poll(self, **arrivals: int) -> HttpState | None:
        """Let a minute pass, in which these requests arrive, and return what is observed."""
        self.now += 60
        for name, count in arrivals.items():
            self.proxies[name].arrived += count
        readings = {name: proxy.reading(self.now) for name, proxy in self.proxies.items()}
        state, history = observe(self.history, readings, {WORKER: self.since}, self.now)
        self.history = proxies.parse(proxies.dumps(history))
        return state

    def known(self, **arrivals: int) -> HttpState:
        state = self.poll(**arrivals)
        assert state is not None
        return state


@pytest.fixture
def service() -> Service:
    service = Service()
    service.add("a", "b")
    assert service.poll(a=1000, b=1000) is None  # no rates yet
    return service


def worker(done: int, failed: int = 0, busy: float = 0.0, seconds: float = 0.0) -> WorkerRequests:
    return WorkerRequests(*WORKER, done, failed, 0, busy, seconds)


def test_the_requests_of_all_proxies_are_added(service: Service) -> None:
    service.proxies["a"].waiting, service.proxies["b"].waiting = 3, 4
    service.proxies["b"].refused = 6
    state = service.known(a=60, b=120)
    assert (state.waiting, state.proxies, state.unreadable) == (7, 2, 0)
    assert state.arrival_rate == pytest.approx(3.0)
    assert state.refused_rate == pytest.approx(0.1)
    assert state.end_rate == pytest.approx(2.9)


def test_an_item_written_at_another_time_does_not_change_the_rate(service: Service) -> None:
    service.known(a=60, b=60)
    service.proxies["a"].lag = 15.0  # it counted for 50 s
    assert service.known(a=50, b=60).arrival_rate == pytest.approx(2.0)


def test_a_proxy_that_cannot_be_read_counts_as_the_busiest_other_one(service: Service) -> None:
    service.known(a=60, b=60)
    service.proxies["b"].is_readable = False
    service.proxies["a"].waiting = 5
    state = service.known(a=300)
    assert (state.proxies, state.unreadable, state.waiting) == (2, 1, 10)
    assert state.arrival_rate == pytest.approx(10.0)


def test_a_proxy_that_cannot_be_read_counts_at_least_as_before(service: Service) -> None:
    service.known(a=60, b=600)
    service.proxies["b"].is_readable = False
    assert service.known(a=60).arrival_rate == pytest.approx(11.0)


def test_a_stale_item_is_unknown(service: Service) -> None:
    service.proxies["b"].lag = STALE_SECONDS + 1
    assert service.known(a=60).unreadable == 1


def test_without_a_readable_proxy_nothing_is_known(service: Service) -> None:
    for proxy in service.proxies.values():
        proxy.is_readable = False
    assert service.poll() is None
    service.proxies.clear()
    assert service.poll() is None


def test_a_restarted_proxy_counts_at_least_as_before(service: Service) -> None:
    service.known(a=60, b=600)
    service.proxies["b"] = replace(service.proxies["b"], started_at=service.now + 50, arrived=0)
    state = service.known(a=60, b=1)
    assert state.unreadable == 0
    assert state.arrival_rate == pytest.approx(11.0)
    assert service.known(a=60, b=60).arrival_rate == pytest.approx(2.0)


def test_counts_that_go_back_in_one_process_are_no_burst(service: Service) -> None:
    service.known(a=60, b=60)
    service.proxies["b"].arrived -= 500
    assert service.known(a=60).arrival_rate == pytest.approx(2.0)


def test_requests_of_a_replaced_proxy_are_counted_until_its_end(service: Service) -> None:
    service.known(a=60, b=60)
    service.proxies["b"].is_listed = False
    service.proxies["b"].lag = 35.0  # it wrote 30 s after the last poll, and has received 30 requests
    service.add("c", age=30.0)
    service.proxies["c"].is_readable = False
    state = service.known(a=60, b=30)
    assert (state.proxies, state.unreadable) == (1, 0)  # the new one boots
    assert state.arrival_rate == pytest.approx(1.5)
    service.proxies["c"].is_readable = True
    service.proxies["b"].lag += 60
    state = service.known(a=60, c=60)
    assert state.proxies == 2
    assert state.arrival_rate == pytest.approx(2.0, rel=0.1)


def test_a_new_proxy_that_never_writes_becomes_unknown(service: Service) -> None:
    service.add("c", age=0.0)
    service.proxies["c"].is_readable = False
    unreadable = [service.known(a=60, b=60).unreadable for _ in range(int(NEW_SECONDS // 60) + 1)]
    assert unreadable == [0, 0, 0, 0, 1, 1]


def test_requests_without_any_worker_are_seen(service: Service) -> None:
    service.proxies["a"].refused = 1
    state = service.known(a=1)
    assert state.arrival_rate > 0
    assert (state.end_rate, state.workers) == (0, ())


def test_a_workers_requests_are_added_over_its_proxies() -> None:
    service = Service()
    service.add("a", "b")
    service.proxies["a"].worker, service.proxies["b"].worker = worker(5000, 5), worker(7000)
    service.poll()
    for _ in range(6):
        for proxy, failed in (("a", 6), ("b", 0)):
            before = service.proxies[proxy].worker
            service.proxies[proxy].worker = replace(
                before,
                done=before.done + 30,
                failed=before.failed + failed,
                busy_seconds=before.busy_seconds + 30,
                request_seconds=before.request_seconds + 60,
            )
        [traffic] = service.known().workers
    assert (traffic.instance, traffic.slot, traffic.since) == (*WORKER, service.since)
    assert (traffic.done, traffic.failed, traffic.seconds) == (360, 36, 300)
    assert (traffic.rate, traffic.failed_rate) == (pytest.approx(1.0), pytest.approx(0.1))
    # Each proxy has a request there for half of the time: one of them for three quarters.
    assert traffic.busy == pytest.approx(0.75, abs=0.01)
    assert traffic.in_flight == pytest.approx(2.0, abs=0.01)


def test_a_restarted_workers_requests_begin_at_0(service: Service) -> None:
    service.proxies["a"].worker = worker(100, 50)
    service.poll()
    service.proxies["a"].worker = worker(160, 80)
    service.since = service.now + 30
    [traffic] = service.known().workers
    assert (traffic.done, traffic.failed, traffic.seconds) == (0, 0, 0)
    service.proxies["a"].worker = worker(190, 80)
    [traffic] = service.known().workers
    assert (traffic.done, traffic.failed, traffic.rate) == (30, 0, 0.5)


def test_a_worker_that_ends_nothing_has_no_rate_after_five_minutes(service: Service) -> None:
    for done in (0, 60, 120, 180):
        service.proxies["a"].worker = worker(done, busy=done / 2)
        service.poll()
    rates = []
    for minute in range(6):
        service.proxies["a"].worker = worker(180, busy=90 + 60 * minute)
        [traffic] = service.known().workers
        rates.append(traffic.rate)
    assert min(rates[:4]) > 0.1
    assert rates[4:] == [0, 0]
    assert traffic.busy > 0.7


def test_a_worker_without_an_item_is_left_out(service: Service) -> None:
    service.proxies["a"].worker = worker(100)
    service.poll()
    readings = {name: proxy.reading(service.now + 60) for name, proxy in service.proxies.items()}
    state, history = observe(service.history, readings, {}, service.now + 60)
    assert state.workers == ()
    assert history.workers  # it may come back


@st.composite
def minutes(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Return events, each with the requests that the proxies receive in that minute."""
    events = st.sampled_from(["none", "restart", "replace", "hide", "show", "late"])
    counts = st.integers(0, 600)
    return draw(st.lists(st.tuples(events, counts, counts), min_size=2, max_size=12))


@given(minutes())
def test_no_event_hides_requests_that_were_counted(events: list[tuple[str, int, int]]) -> None:
    """The rate is never below that of the counts that could be read."""
    service = Service()
    service.add("a", "b")
    service.poll()
    names, replaced = ["a", "b"], 0
    missed: list[int] = []
    for event, first, second in events:
        name = names[1]
        proxy = service.proxies[name]
        if event == "restart":
            service.proxies[name] = replace(proxy, started_at=service.now + 1, arrived=0)
        elif event == "replace":
            proxy.is_listed = False
            replaced += 1
            names[1] = f"c{replaced}"
            service.add(names[1], age=10.0)
        elif event in ("hide", "show"):
            proxy.is_readable = event == "show"
        elif event == "late":
            proxy.lag = 20.0
        state = service.known(**{names[0]: first, names[1]: second})
        is_readable = service.proxies[names[1]].is_readable
        missed = [second] if event in ("restart", "replace") else [*missed, second]
        # When those arrived that were not read is unknown: their mean.
        read = [first, sum(missed) / len(missed)] if is_readable else [first]
        missed = [] if is_readable else missed
        # An item is written up to 15 s later than the one before.
        assert state.arrival_rate * 60 >= sum(read) * 60 / 75 - 1e-6
        assert state.unreadable == (0 if is_readable else 1)
        if not is_readable:
            assert state.arrival_rate >= 2 * first / 60 - 1e-6


@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 50))
def test_an_unreadable_proxy_is_never_assumed_to_have_less(first: int, second: int, waiting: int) -> None:
    """With an even load the estimate is at least what would have been read."""
    readable, unreadable = Service(), Service()
    for service in (readable, unreadable):
        service.add("a", "b")
        service.poll()
        service.known(a=second, b=second)
        service.proxies["a"].waiting = service.proxies["b"].waiting = waiting
    unreadable.proxies["b"].is_readable = False
    known = readable.known(a=first, b=first)
    assumed = unreadable.known(a=first, b=first)
    assert assumed.waiting >= known.waiting
    assert assumed.arrival_rate >= known.arrival_rate - 1e-9


NOW = 1_800_000_000.0
SILENT = Worker("ocr", "i-1", 0, NOW - 3600, NOW, "ready", report=WorkerReport("v1"))
TRAFFIC = WorkerTraffic("i-1", 0, NOW - 3600, 900, 9, 300.0, 2.0, 0.02, 0.5, 2.0)


def state(*traffic: WorkerTraffic, unreadable: int = 0) -> HttpState:
    return HttpState(NOW - 20, 0, 2, 0.0, 2.0, 2.0, 0.0, 2, unreadable, traffic)


def filled(worker: Worker, observed: HttpState, concurrency: int = 16) -> WorkerReport:
    [found] = with_requests({"i-1": [worker]}, observed, concurrency)["i-1"]
    assert found.report is not None
    return found.report


def test_a_worker_has_the_requests_that_the_proxies_counted() -> None:
    report = filled(SILENT, state(TRAFFIC))
    assert (report.version, report.reported_at) == ("v1", NOW - 20)
    assert (report.done, report.failed, report.rate, report.failed_rate) == (900, 9, 2.0, 0.02)
    assert (report.busy, report.batch_size) == (0.5, 16)
    # 600 requests in 150 busy seconds, four at once: 150 batches of a second
    assert report.batches == (BatchRow(4, 150, 600, 150.0),)


def test_a_worker_that_reports_by_itself_is_left_alone() -> None:
    reporting = replace(SILENT, report=WorkerReport("v1", reported_at=NOW, done=3))
    assert filled(reporting, state(TRAFFIC)) == reporting.report


@pytest.mark.parametrize("traffic", [[], [replace(TRAFFIC, since=NOW - 30)], [replace(TRAFFIC, slot=1)]])
def test_a_worker_at_no_proxy_ends_no_requests(traffic: list[WorkerTraffic]) -> None:
    report = filled(SILENT, state(*traffic))
    assert (report.reported_at, report.done, report.rate, report.batches) == (NOW - 20, 0, 0.0, ())


def test_while_a_proxy_cannot_be_read_shares_are_unknown() -> None:
    report = filled(SILENT, state(TRAFFIC, unreadable=1))
    assert (report.done, report.busy, report.failed_rate, report.batches) == (900, None, None, ())
    assert filled(SILENT, state(unreadable=1)) == SILENT.report


@given(st.floats(0, 1000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 5000), st.floats(0, 300))
@example(1.0, 0.0, 5e-324, 1.0, 1.0)
def test_any_traffic_gives_a_valid_report(
    rate: float, failed: float, busy: float, in_flight: float, seconds: float
) -> None:
    traffic = WorkerTraffic("i-1", 0, NOW - 3600, 0, 0, seconds, rate, rate * failed, busy, in_flight)
    assert filled(SILENT, state(traffic)).reported_at == NOW - 20


@given(st.floats(0.05, 4.0), st.floats(0.01, 2.0))
def test_the_servers_time_for_requests_at_once_is_learned(fixed: float, per_request: float) -> None:
    """A server that needs ``fixed + per_request · b`` seconds for b requests at once, at several loads."""
    learned = BatchTimes()
    for at_once in (1.0, 2.0, 4.0, 8.0, 12.0) * 20:
        each = fixed + per_request * at_once
        # A minute in which it is busy for 0.8 of the time.
        traffic = replace(TRAFFIC, rate=0.8 * at_once / each, busy=0.8, in_flight=0.8 * at_once, seconds=3e5)
        [row] = batches(traffic)
        done = BatchesDone({row.max_size: (float(row.batches), float(row.requests), row.seconds)}, 16)
        learned = learned.update({"g6.xlarge": done})
    speed = learned.speed(Throughput(), {"g6.xlarge": 1})
    time = BatchTime(fixed, per_request, 16)
    assert speed.rate(12.0) == pytest.approx(time.rate(12.0), rel=0.02)
