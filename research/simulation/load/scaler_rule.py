"""The deployed scaler's core as a scaling rule of a replay."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.group.scaling_settings import Bounds
from contracts.registry.queue_state import QueueState
from lambdas.core.scaling.batches import BatchesDone
from lambdas.core.scaling.decide import ScalingDecision, decide
from lambdas.core.scaling.log_source import LogMinute, LogSource
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.model import POLL_SECONDS, Load, LoadObservation
from lambdas.core.scaling.queue_source import QueueSource
from lambdas.core.scaling.throughput import WorkDone
from research.simulation.load.rules import View


@dataclass(slots=True)
class ScalerRule:
    """``decide`` within ``bounds``, by the queue; ``boot_seconds`` is the controller's estimate of boots."""

    bounds: Bounds
    boot_seconds: float
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    decision: ScalingDecision | None = None

    def target(self, view: View) -> int:
        """See ``Rule``."""
        load, work_done = self.measured(view)
        observation = LoadObservation(
            now=view.now,
            target=view.target,
            load=load,
            ready=view.ready,
            booting=view.booting,
            work_done=work_done,
            boot_seconds=self.boot_seconds,
            is_spot_scarce=view.scarce,
            booting_seconds=view.booting_seconds,
            batches=view.batches,
        )
        self.decision = decide(observation, self.bounds, self.memory)
        self.memory = self.decision.memory
        return self.decision.target

    def measured(self, view: View) -> tuple[Load | None, Mapping[str, WorkDone]]:
        """Return the load and the completed work of the last minute."""
        queue = QueueState(
            observed_at=view.now,
            ready=view.waiting,
            in_flight=view.in_flight,
            oldest_seconds=float(view.oldest),
            publish_rate=view.arriving,
            ack_rate=view.leaving,
            consumers=sum(view.ready.values()),
        )
        work_done = {name: WorkDone(*work) for name, work in view.served.items()}
        return QueueSource(queue).load(view.now), work_done


@dataclass(slots=True)
class HttpRule(ScalerRule):
    """``decide`` by the requests at proxies, which the queue watcher has written a minute ago.

    Proxies do not see batches, but how many requests are at a worker while it is busy.
    """

    before: View | None = None

    def target(self, view: View) -> int:
        """See ``Rule``."""
        written, self.before = self.before or view, view
        delayed = replace(
            written,
            now=view.now,
            target=view.target,
            ready=view.ready,
            booting=view.booting,
            booting_seconds=view.booting_seconds,
            batches={name: _at_once(done) for name, done in written.batches.items()},
        )
        return ScalerRule.target(self, delayed)


def _at_once(done: BatchesDone) -> BatchesDone:
    """Return batches as proxies see them: of the mean number of requests at a worker in its busy time."""
    requests = sum(row[1] for row in done.rows.values())
    seconds = sum(row[2] for row in done.rows.values())
    at_once = sum(row[1] / row[0] * row[2] for row in done.rows.values()) / seconds
    bound = 1 << (math.ceil(at_once) - 1).bit_length()
    return BatchesDone({bound: (requests / at_once, requests, seconds)}, done.max_size)


@dataclass(slots=True)
class LogRule(ScalerRule):
    """``decide`` by a request log, whose newest minute is a minute old.

    Lines are written when a request arrives, and with the seconds that its worker needed when it ends.
    With ``counts_ended`` there are only the latter; with ``stated_seconds`` only the former, and each request
    counts as this many seconds.
    """

    counts_ended: bool = False
    stated_seconds: float | None = None
    minutes: deque[LogMinute] = field(default_factory=lambda: deque(maxlen=4))

    def measured(self, view: View) -> tuple[Load | None, Mapping[str, WorkDone]]:
        """See ``ScalerRule``."""
        arrived = view.arriving * POLL_SECONDS
        ended: float | None = sum(requests for requests, _ in view.served.values())
        busy_seconds = sum(seconds for _, seconds in view.served.values())
        if self.stated_seconds is not None:
            ended, busy_seconds = None, arrived * self.stated_seconds
        requests = ended if self.counts_ended else arrived
        self.minutes.append(LogMinute(view.now, requests or 0.0, ended, busy_seconds))
        source = LogSource(self.minutes, self.counts_ended)
        return source.load(view.now), source.work_done(view.now, {}, self.memory.throughput)
