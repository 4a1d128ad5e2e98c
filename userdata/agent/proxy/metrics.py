"""A proxy's metrics: counts since the last line, and what waits and runs now."""

from __future__ import annotations

from contracts import names
from contracts.agent.config import Config
from contracts.registry.proxy_state import ProxyState
from userdata.agent.metrics import emf


class RequestMetrics:
    """Differences between the states of one proxy; a restarted HAProxy counts from 0 again."""

    def __init__(self, config: Config, instance: str) -> None:
        self._config = config
        self._instance = instance
        self._last: ProxyState | None = None

    def line(self, state: ProxyState, ready: int) -> str:
        """Return the EMF line of a state; ``ready`` are the workers that take requests."""
        last = self._last if self._last and self._last.started_at == state.started_at else None
        self._last = state

        def count(name: str, value: int, before: int) -> emf.Metric:
            return emf.Metric(name, "Count", (float(max(value - before, 0)),))

        failed = sum(worker.failed for worker in state.workers)
        failed_before = sum(worker.failed for worker in last.workers) if last else 0
        metrics = [
            count(names.METRIC_HTTP_REQUESTS, state.arrived, last.arrived if last else 0),
            count(names.METRIC_HTTP_REFUSED, state.refused, last.refused if last else 0),
            count(names.METRIC_HTTP_CUT, state.cut, last.cut if last else 0),
            count(names.METRIC_HTTP_REPEATED, state.repeated, last.repeated if last else 0),
            count(names.METRIC_HTTP_WORKER_ERRORS, failed, failed_before),
            emf.Metric(names.METRIC_HTTP_WAITING, "Count", (float(state.waiting),)),
            emf.Metric(names.METRIC_HTTP_IN_FLIGHT, "Count", (float(state.in_flight),)),
            emf.Metric(names.METRIC_HTTP_WORKERS_READY, "Count", (float(ready),)),
        ]
        config = self._config
        dimensions = {"stack": config.stack, "group": config.group}
        group, more = config.metrics.log_group, {"instance": self._instance}
        return emf.line(state.observed_at, group, self._instance, dimensions, metrics, more)
