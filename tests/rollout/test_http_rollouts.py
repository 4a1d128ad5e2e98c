"""Roll-outs and health of HTTP workers in simulated time, judged by what two proxies count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from contracts.registry.http_state import HttpState
from contracts.registry.proxy_state import ProxyState, WorkerRequests
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.queues.proxies import CountedWorker, ProxyHistory, ProxyReading, observe
from lambdas.core.queues.worker_requests import with_requests
from lambdas.core.rollout.step import ROLLED_BACK, STALLED
from tests.rollout.simulated_service import NEW, OLD, Fault, Instance, SimulatedService, min_served_share


@dataclass
class HttpService(SimulatedService):
    """Workers that report no requests, behind two proxies; each counts half of the requests.

    ``unreadable``: the second proxy's item cannot be read. ``failing``: instances that answer 5xx.
    """

    counted: dict[CountedWorker, tuple[float, int, int]] = field(default_factory=dict)
    """Start, requests and failed ones as the worker itself knows them."""
    totals: dict[CountedWorker, tuple[int, int]] = field(default_factory=dict)
    """Requests and failed ones since the proxies first had the worker, over its restarts."""
    history: ProxyHistory = field(default_factory=ProxyHistory)
    unreadable: bool = False
    failing: dict[str, float] = field(default_factory=dict)
    waiting_requests: int = 0

    def snapshot(self) -> ServiceSnapshot:
        hosts = [self._host(instance) for instance in self.instances.values()]
        for host in hosts:
            self._count(host)
        state = self._observe(hosts)
        silent = {host.id: [replace(w, report=_silent(w.report)) for w in host.workers] for host in hosts}
        filled = silent if state is None else with_requests(silent, state, 16)
        return ServiceSnapshot(
            self.now,
            tuple(replace(host, workers=tuple(filled[host.id])) for host in hosts),
            None if state is None else state.queue,
            self.boot_seconds,
            are_requests_unknown=state is None or state.unreadable > 0,
            target=self.target,
            maximum=self.maximum,
        )

    def serves(self, instance: Instance) -> bool:
        return super().serves(instance) and instance.id not in self.failing

    def _count(self, host: WorkerHost) -> None:
        for worker in host.workers:
            key = (worker.instance, worker.slot)
            since, done, failed = self.counted.get(key, (worker.since, 0, 0))
            if since != worker.since:
                done = failed = 0
            total, lost = self.totals.get(key, (0, 0))
            added, errors = worker.report.done - done, worker.report.failed - failed
            if worker.instance in self.failing:
                errors = added
                if worker.since > self.failing[worker.instance]:
                    del self.failing[worker.instance]  # a restart mends it
            self.totals[key] = total + added, lost + errors
            self.counted[key] = worker.since, worker.report.done, worker.report.failed

    def _observe(self, hosts: list[WorkerHost]) -> HttpState | None:
        rows = tuple(
            WorkerRequests(host, slot, done // 2, min(failed, done) // 2, 0, done * 0.5, done * 1.0)
            for (host, slot), (done, failed) in self.totals.items()
            if host in self.instances
        )
        arrived = sum(row.done for row in rows)
        proxy = ProxyState(self.now - 5, self.now - 86_400, 0, 0, 0.0, arrived, arrived, workers=rows)
        readings = {"a": ProxyReading(proxy, 0.0), "b": ProxyReading(None if self.unreadable else proxy, 0.0)}
        starts = {(w.instance, w.slot): w.since for host in hosts for w in host.workers}
        state, self.history = observe(self.history, readings, starts, self.now)
        return state


def _silent(report: WorkerReport | None) -> WorkerReport | None:
    return None if report is None else replace(report, reported_at=0.0, done=0, failed=0, rate=0.0)


def test_a_good_release_reaches_all_workers() -> None:
    service = HttpService(8, 16)
    service.run(6)
    service.min_served = 10**9
    service.roll_out(NEW)
    assert min_served_share(service) >= 0.9
    assert (service.messages, service.replaced) == ([], [])


@pytest.mark.parametrize("fault", ["finishes nothing", "fails all"])
def test_a_bad_release_is_rolled_back(fault: Fault) -> None:
    service = HttpService(8, 16, faults={NEW.version: fault})
    service.run(6)
    service.desired = NEW
    service.run_until_rejected(60)
    service.run_until(lambda: service.all_run(OLD), 60)
    assert service.messages == [f"{ROLLED_BACK}/{NEW.version}"]
    assert service.replaced == []


def test_a_release_that_fails_some_requests_is_rolled_back() -> None:
    service = HttpService(8, 16, failed_shares={NEW.version: 0.2})
    service.run(6)
    service.desired = NEW
    service.run_until_rejected()
    assert "requests failed" in service.rollout.rejection_reason


def test_a_roll_out_waits_while_requests_are_unknown() -> None:
    service = HttpService(8, 16)
    service.run(6)
    service.unreadable = True
    service.desired = NEW
    service.run(60)
    assert service.verified == []
    assert service.releases.count(NEW) == 0
    service.unreadable = False
    service.run_until(lambda: NEW in service.releases, 20)
    service.unreadable = True
    service.run(120)
    assert service.verified == []
    assert service.messages == [STALLED]
    service.unreadable = False
    service.run_until(lambda: service.all_run(NEW), 120)


def test_a_worker_that_answers_errors_alone_is_restarted() -> None:
    service = HttpService(8, 16)
    service.run(6)
    before = {name: instance.starts for name, instance in service.instances.items()}
    [bad, *_] = service.instances
    service.failing[bad] = service.now
    seconds = service.run_until(lambda: service.instances[bad].starts > before[bad], 20)
    assert seconds <= 600
    service.run(30)
    assert {name: i.starts for name, i in service.instances.items() if name != bad} == {
        name: starts for name, starts in before.items() if name != bad
    }
    assert (service.messages, service.replaced) == ([], [])


def test_workers_that_all_answer_errors_are_a_common_cause() -> None:
    service = HttpService(8, 16)
    service.run(6)
    before = {name: instance.starts for name, instance in service.instances.items()}
    service.failing = dict.fromkeys(service.instances, service.now)
    service.run(30)
    assert {name: instance.starts for name, instance in service.instances.items()} == before
    assert service.messages == [f"common/failing/version {OLD.version}"]
    assert service.replaced == []
