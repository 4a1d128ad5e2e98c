"""The input of a scaling rule, and published scaling rules for comparison."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lambdas.core.scaling.batches import BatchesDone


@dataclass(frozen=True, slots=True)
class View:
    """A service at ``now``: workers by state, rates in requests a second, requests by state.

    ``busy`` is the GPU utilization of the ready workers in the last minute. ``scarce``: On-Demand instances
    replace missing Spot capacity. ``booting_seconds`` is the mean time since the launch of those that boot.
    """

    now: float
    target: int
    ready: dict[str, int]
    booting: int
    arriving: float
    leaving: float
    waiting: int
    in_flight: int
    oldest: int
    busy: float
    served: dict[str, tuple[float, float]]
    scarce: bool = False
    batches: Mapping[str, BatchesDone] = field(default_factory=dict)
    booting_seconds: float | None = None


class Rule(Protocol):
    """A scaling rule, which may have state."""

    def target(self, view: View) -> int:
        """Return the desired number of workers."""
        ...


@dataclass(slots=True)
class TargetTracking:
    """AWS's target tracking on a metric of the ready workers.

    Scales out after three consecutive minutes above the target, and in after fifteen below nine tenths of it:
    the alarms that a policy creates. In proportion to the metric; starting workers count as capacity. Scales
    in by at most the fraction ``step``, and not again within ``cooldown`` seconds (300 s are the default for
    a fleet, Application Auto Scaling's reference, "ScaleInCooldown"). AWS publishes no formula for gradual
    scale-in, so ``step`` is tuned in its favour.

    ``period``: seconds of the metric; with 10 (a high-resolution metric of one's own) the alarms need a sixth
    of the time, and a minute at least, in which the rule is asked.

    ``metric`` is ``backlog``, visible messages for each instance (Auto Scaling guide, "Scaling policy based
    on Amazon SQS"), ``gpu``, the share of time in which GPUs work, or ``requests``, those of a minute for
    each target of a load balancer (``ALBRequestCountPerTarget``).
    """

    metric: str
    value: float
    cooldown: float = 300.0
    step: float = 1.0
    period: float = 60.0
    _above: int = 0
    _below: int = 0
    _moved: float = -math.inf

    def target(self, view: View) -> int:
        """See ``Rule``; without a ready worker there is no metric and no change."""
        ready = sum(view.ready.values())
        if not ready:
            return max(1, view.target)
        metric = {"backlog": view.waiting / ready, "gpu": view.busy, "requests": 60 * view.arriving / ready}[
            self.metric
        ]
        self._above = self._above + 1 if metric > self.value else 0
        self._below = self._below + 1 if metric < 0.9 * self.value else 0
        desired = math.ceil(ready * metric / self.value - 1e-9)
        if self._above >= math.ceil(3 * self.period / 60):
            return max(view.target, desired)
        if self._below >= math.ceil(15 * self.period / 60) and view.now - self._moved >= self.cooldown:
            min_target = view.target - max(1, int(view.target * self.step))
            target = max(1, desired, min_target)
            if target < view.target:
                self._moved = view.now
            return min(view.target, target)
        return view.target


@dataclass(slots=True)
class Keda:
    """KEDA's RabbitMQ triggers and the Horizontal Pod Autoscaler behind them, with their defaults.

    Of several triggers, each a mode and its value, the largest desired number counts. It is metric ÷ value,
    rounded up, if it differs by more than a tenth from the current one; a decrease takes the maximum of the
    last ``stabilisation`` seconds (KEDA 2.21, RabbitMQ scaler; Kubernetes, HPA: tolerance 0.1,
    scaleDown.stabilizationWindowSeconds 300, no window for increases).

    Modes: ``length`` (QueueLength, ready messages), ``unacknowledged`` (in-flight messages included: its
    default over HTTP), ``rate`` (MessageRate: published per second), ``delivered`` (DeliverGetRate); of the
    whole queue, with the metric type ``Value``: ``ratio`` (PublishedToDeliveredRatio) and ``seconds``
    (ExpectedQueueConsumptionTime).
    """

    triggers: Sequence[tuple[str, float]]
    stabilisation: float = 300.0
    _desired: deque[tuple[float, int]] = field(default_factory=deque)

    def target(self, view: View) -> int:
        """See ``Rule``."""
        desired = max(self._by(view, mode, value) for mode, value in self.triggers)
        self._desired.append((view.now, desired))
        while self._desired[0][0] <= view.now - self.stabilisation:
            self._desired.popleft()
        return desired if desired >= view.target else min(view.target, max(w for _, w in self._desired))

    @staticmethod
    def _by(view: View, mode: str, value: float) -> int:
        current, leaving = max(1, view.target), max(view.leaving, 1e-3)
        workers = {
            "length": view.waiting / value,
            "unacknowledged": (view.waiting + view.in_flight) / value,
            "rate": view.arriving / value,
            "delivered": view.leaving / value,
            "ratio": current * view.arriving / leaving / value,
            "seconds": current * view.waiting / leaving / value,
        }[mode]
        is_near = abs(workers / current - 1) <= 0.1
        return view.target if is_near else max(1, math.ceil(workers - 1e-9))
