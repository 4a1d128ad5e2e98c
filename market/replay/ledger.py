"""The results of a replay: service, cost and events. Its size grows with events, not with ticks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from market.rules import TICK_SECONDS


@dataclass(frozen=True, slots=True)
class Span:
    """A run of equal ticks: ready and paid capacity, in slots.

    ``cost`` and ``standby`` are in On-Demand slots per tick; ``standby``, the warm pool's cost, is not part
    of ``cost``.
    """

    tick: int
    ticks: int
    target: int
    ready: int
    spot: int
    on_demand: int
    cost: float
    refused: bool
    standby: float = 0.0


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of ``count`` instances at a tick, in a pool or a group role (``where``)."""

    tick: int
    kind: str
    count: int
    where: str


@dataclass(slots=True)
class Ledger:
    """The ledger of one replay. Ticks before ``warm_up`` are in ``spans`` but not counted.

    ``target`` is the initial one; each span is counted by its own target. Without ``keep_spans`` only sums
    are stored.
    """

    target: int
    warm_up: int
    keep_spans: bool = True
    spans: list[Span] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    _target_slots: int = 0
    _served: int = 0
    _full: int = 0
    _none_ready: int = 0
    _losses: tuple[int, int] = (-1, 0)
    largest_loss: int = 0
    """Maximum instances interrupted in one tick."""
    _paid: float = 0.0
    _standby: float = 0.0
    _paid_ticks: int = 0
    _idle_ticks: int = 0

    def add(self, span: Span, useless: int) -> None:
        """Add a span; ``useless`` of its instances boot or exceed the target."""
        if self.keep_spans:
            self.spans.append(span)
        counted = span.tick + span.ticks - max(span.tick, self.warm_up)
        if counted <= 0:
            return
        served = min(span.ready, span.target)
        self.counted += counted
        self._target_slots += span.target * counted
        self._served += served * counted
        self._full += counted if served == span.target else 0
        self._none_ready += counted if span.target and not served else 0
        self._paid += span.cost * counted
        self._standby += span.standby * counted
        self._paid_ticks += (span.spot + span.on_demand) * counted
        self._idle_ticks += useless * counted

    def happened(self, happening: Happening) -> None:
        """Record an event."""
        if self.keep_spans:
            self.happenings.append(happening)
        if happening.tick >= self.warm_up:
            if happening.kind == "interruption":
                tick, lost = self._losses
                lost = happening.count + (lost if tick == happening.tick else 0)
                self._losses, self.largest_loss = (happening.tick, lost), max(self.largest_loss, lost)
            self.counts[happening.kind] = self.counts.get(happening.kind, 0) + happening.count

    @property
    def availability(self) -> float:
        """Mean over counted ticks of min(ready, target) ÷ target."""
        return self._served / self._target_slots if self._target_slots else 0.0

    @property
    def full_fraction(self) -> float:
        """The share of counted ticks with the whole target ready."""
        return self._full / self.counted if self.counted else 0.0

    @property
    def minutes_none_ready(self) -> float:
        """Minutes in which a target was set and no slot was ready: the mean over slots hides them."""
        return self._none_ready * TICK_SECONDS / 60

    @property
    def cost(self) -> float:
        """The cost as a fraction of ``target`` On-Demand instances all the time."""
        return self._paid / self._target_slots if self._target_slots else 0.0

    @property
    def standby_cost(self) -> float:
        """The additional cost of the warm pool, in the same unit."""
        return self._standby / self._target_slots if self._target_slots else 0.0

    @property
    def cost_with_everything(self) -> float:
        """The cost with the warm pool, in the same unit."""
        return self.cost + self.standby_cost

    @property
    def wasted_fraction(self) -> float:
        """The share of paid instance time that is unused: booting, or beyond the target."""
        return self._idle_ticks / self._paid_ticks if self._paid_ticks else 0.0

    def since_warm_up(self) -> Iterator[Span]:
        """Yield the counted part of every span."""
        for span in self.spans:
            start = max(span.tick, self.warm_up)
            if start < span.tick + span.ticks:
                yield replace(span, tick=start, ticks=span.tick + span.ticks - start)
