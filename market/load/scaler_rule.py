"""The deployed scaler's core as a scaling rule of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.group.scaling_settings import Bounds
from contracts.registry.queue_state import QueueState
from lambdas.core.scaling.decide import ScalingDecision, decide
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.model import LoadObservation, WorkDone
from market.load.rules import View


@dataclass(slots=True)
class ScalerRule:
    """``decide`` within ``bounds``; ``boot_seconds`` is the controller's estimate of boot times."""

    bounds: Bounds
    boot_seconds: float
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    decision: ScalingDecision | None = None

    def target(self, view: View) -> int:
        """See ``Rule``."""
        queue = QueueState(
            observed_at=view.now,
            ready=view.waiting,
            in_flight=view.in_flight,
            oldest_seconds=float(view.oldest),
            publish_rate=view.arriving,
            ack_rate=view.leaving,
            consumers=sum(view.ready.values()),
        )
        observation = LoadObservation(
            now=view.now,
            target=view.target,
            queue=queue,
            ready=view.ready,
            booting=view.booting,
            work_done={name: WorkDone(*work) for name, work in view.served.items()},
            boot_seconds=self.boot_seconds,
            is_spot_scarce=view.scarce,
        )
        self.decision = decide(observation, self.bounds, self.memory)
        self.memory = self.decision.memory
        return self.decision.target
