"""The data of a finished rehearsal, from which summary and page are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpu_spot.jobs.report import JobReport
from gpu_spot.status.decisions import DecisionLine
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS, Rules
from rehearsal.results.moves import JobMigrations
from rehearsal.results.tenancy import TenancyAccount


@dataclass(frozen=True, slots=True)
class Run:
    """A finished rehearsal of one capacity group.

    ``start`` is the epoch second of tick 0 and ``hours`` the simulated time; ``market`` is ``"model"``
    or the trace files; ``pools`` maps each trace to its capacity pool (``type@zone``). ``resources`` are
    (type, name) pairs. ``ticks_played`` of all ticks were simulated, in ``wall_seconds`` of real time.
    ``migrations`` are the moves of a training job, None for a service; ``job`` is the report of
    `gpu-spot jobs show` at the end; ``tenancy`` is the account of a shared host's tenants.
    ``hour_price`` is the On-Demand list price of a slot for an hour in US dollars, of the cheapest type; None
    if none is known.
    """

    stack: str
    group: str
    policy: str
    target: int
    start: float
    hours: float
    rules: Rules
    market: Literal["model"] | tuple[str, ...]
    pool_size: int
    pools: Mapping[str, str]
    ledger: Ledger
    resources: tuple[tuple[str, str], ...]
    decisions: tuple[DecisionLine, ...]
    ticks_played: int
    wall_seconds: float
    hour_price: float | None = None
    migrations: JobMigrations | None = None
    job: JobReport | None = None
    tenancy: TenancyAccount | None = None

    @property
    def ticks(self) -> int:
        """Number of simulated ticks."""
        return round(self.hours * 3600 / TICK_SECONDS)

    def at(self, tick: int) -> float:
        """Return the start of ``tick`` in epoch seconds."""
        return self.start + tick * TICK_SECONDS
