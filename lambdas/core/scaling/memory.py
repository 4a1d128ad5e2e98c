"""What the scaler remembers of a service from minute to minute: bounded, and lost without harm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from contracts import codec
from contracts.registry.queue_state import Backlog
from contracts.stored import ContractError, stored
from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.model import LOOK_SECONDS, LoadObservation
from lambdas.core.scaling.profile import BINS, Profile
from lambdas.core.scaling.staffed_wait import StaffedWait
from lambdas.core.scaling.throughput import Throughput

COOLDOWN: Final = 600.0
"""For so long nothing is let go that was wanted: about what three boots of a worker cost."""
RECENT: Final = 15
"""Minutes of arrivals that tell the load of now."""


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """Times are epoch seconds, rates requests a second.

    ``arrivals`` (time, rate) and ``wanted`` (time, workers) are the last minutes', oldest first.
    """

    profile: Profile = field(default_factory=Profile)
    throughput: Throughput = field(default_factory=Throughput)
    staffed: StaffedWait = field(default_factory=StaffedWait)
    dispersion: Dispersion = field(default_factory=Dispersion)
    arrivals: tuple[tuple[float, float], ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()

    def seen(self, observation: LoadObservation, queue: Backlog | None, wait: float) -> ScalingMemory:
        """Return the memory after what a minute told; ``queue`` is None where nobody knows how it stands.

        Who waited longer than ``wait`` seconds was late.
        """
        now = observation.now
        throughput = self.throughput.seen(now, observation.served)
        if queue is None or (self.arrivals and now - self.arrivals[-1][0] < LOOK_SECONDS / 2):
            return replace(self, throughput=throughput)
        recent = (a for a in self.arrivals if now - a[0] < RECENT * LOOK_SECONDS - 1)
        return replace(
            self,
            profile=self.profile.seen(now, queue.arriving),
            throughput=throughput,
            staffed=self.staffed.seen(queue.leaving, late=queue.ready > 0 and queue.oldest > wait),
            dispersion=self._dispersion(now, queue.arriving),
            arrivals=(*recent, (now, queue.arriving)),
        )

    def _dispersion(self, now: float, rate: float) -> Dispersion:
        """Return what the newest two minutes add to it, where none was missed in between."""
        before, its_rate = self.arrivals[-1] if self.arrivals else (0.0, 0.0)
        return self.dispersion.seen(its_rate, rate) if now - before < 1.5 * LOOK_SECONDS else self.dispersion

    def ordered(self, now: float, workers: int) -> ScalingMemory:
        """Return the memory after a decision: so many were wanted; a minute has one decision."""
        kept = (w for w in self.wanted if LOOK_SECONDS / 2 <= now - w[0] < COOLDOWN)
        return replace(self, wanted=(*kept, (now, workers)))

    def most_wanted(self) -> int:
        """Return the most workers that were wanted within the cooldown."""
        return max((workers for _, workers in self.wanted), default=0)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The memory as it is stored: the profile in two parts, so that its rates may be rounded."""

    rates: Mapping[int, float]
    bin: tuple[int, float, int]
    throughput: Throughput
    staffed: StaffedWait = field(default_factory=StaffedWait)
    dispersion: Dispersion = field(default_factory=Dispersion)
    arrivals: tuple[tuple[float, float], ...]
    wanted: tuple[tuple[float, int], ...]


def dump(memory: ScalingMemory) -> str:
    """Return it as JSON, a few kilobytes."""
    profile = memory.profile
    stored = _Stored(
        rates={number: float(f"{rate:.4g}") for number, rate in profile.rates.items()},
        bin=(profile.bin, profile.total, profile.count),
        throughput=memory.throughput,
        staffed=memory.staffed,
        dispersion=memory.dispersion,
        arrivals=memory.arrivals,
        wanted=memory.wanted,
    )
    return json.dumps(codec.dump(stored), separators=(",", ":"))


def parse(text: str) -> ScalingMemory:
    """Read it again; what cannot be read is an empty memory, which learns anew."""
    try:
        stored = codec.parse_text(_Stored, text)
    except ContractError:
        return ScalingMemory()
    if not all(seconds > 0 for _, seconds in stored.throughput.by_type.values()):
        return ScalingMemory()
    rates = {number: rate for number, rate in stored.rates.items() if number < BINS}
    return ScalingMemory(
        Profile(rates, *stored.bin),
        stored.throughput,
        stored.staffed,
        stored.dispersion,
        stored.arrivals[-RECENT:],
        stored.wanted[-60:],
    )
