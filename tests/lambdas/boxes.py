"""The true state of the instances and groups of ``FaultyAws``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Box:
    """An instance; ``boot`` is infinite if its worker never reports.

    ``sick``: its worker reports and does no work.
    """

    id: str
    side: Pool
    spot: bool
    launched: float
    boot: float
    notice: float | None = None
    ending: float | None = None
    ended: float | None = None
    protected: bool = True
    sick: bool = False

    def reports(self, now: float) -> bool:
        """Return whether its worker sends heartbeats."""
        return self.ended is None and now >= self.launched + self.boot

    def works(self, now: float) -> bool:
        """Return whether its worker can work."""
        return self.reports(now) and not self.sick


@dataclass(slots=True)
class Pool:
    """An Auto Scaling group or a Spot Fleet."""

    name: str
    group: str
    is_spot: bool
    is_fleet: bool = False
    desired: int = 0
    shown: int = 0
    modified: float = -1e9
    has_capacity: bool = True
    boxes: list[Box] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    @property
    def takes_back(self) -> bool:
        """Whether a scale-in returns instances to its warm pool; true for fallbacks."""
        return not self.is_spot

    def counted(self) -> list[Box]:
        """Return the instances that AWS counts against the desired capacity."""
        return [b for b in self.boxes if b.ending is None]
