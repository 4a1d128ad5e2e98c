"""The data of a finished rehearsal, from which summary and page are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_spot.jobs.report import JobReport
from gpu_spot.status.decisions import DecisionLine
from market.load.account import LoadAccount
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS, Rules
from market.supply.spot import SpotMarket
from rehearsal.results.moves import JobEnding, JobMigrations
from rehearsal.results.serving import Served
from rehearsal.results.tenancy import TenancyAccount

CapacityChanges: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]
"""By trace name, in order of time: from ``tick`` on the pool can hold ``capacity`` instances."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished rehearsal of one capacity group.

    ``start`` is the epoch second of tick 0 and ``hours`` the simulated time; ``market`` is ``"model"``,
    ``"script"`` or the trace files; ``pools`` maps each trace to its capacity pool (``type@zone``),
    ``capacities`` has the capacity of each (``capacity_changes``). ``resources`` are (type,
    name) pairs. ``ticks_played`` of all ticks were simulated, in ``wall_seconds`` of real time.
    ``migrations`` are the moves of a training job, None for a service; ``outcome`` is the result of a real
    command; ``job`` is the report of `gpu-spot jobs show` at the end.
    ``served`` has the counts of real service workers; ``load`` is the account of a load, under which the
    scaler changes the initial ``target``; ``tenancy`` is the account of a shared host's tenants.
    """

    stack: str
    group: str
    policy: str
    target: int
    start: float
    hours: float
    rules: Rules
    market: Literal["model", "script"] | tuple[str, ...]
    pool_size: int
    pools: Mapping[str, str]
    capacities: CapacityChanges
    ledger: Ledger
    resources: tuple[tuple[str, str], ...]
    decisions: tuple[DecisionLine, ...]
    ticks_played: int
    wall_seconds: float
    migrations: JobMigrations | None = None
    outcome: JobEnding | None = None
    job: JobReport | None = None
    served: Served | None = None
    load: LoadAccount | None = None
    tenancy: TenancyAccount | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for inconsistent parts."""
        if self.ticks < 1:
            raise ValueError(f"hours is {self.hours}, at least one tick of {TICK_SECONDS:g} s is needed")
        if self.ledger.target != self.target:
            raise ValueError(f"target is {self.target}, the ledger's is {self.ledger.target}")
        if not self.ledger.spans:
            raise ValueError("the ledger holds no spans: it must be kept with keep_spans=True")
        if set(self.capacities) != set(self.pools):
            raise ValueError(
                f"capacities are given for {sorted(self.capacities)}, the pools are {sorted(self.pools)}"
            )

        pools = {h.where for h in self.ledger.happenings if h.kind in ("interruption", "unannounced")}
        if unknown := pools - set(self.pools):
            raise ValueError(f"interruptions in {sorted(unknown)}, the pools are {sorted(self.pools)}")

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return self.rules.seed

    @property
    def ticks(self) -> int:
        """Number of simulated ticks."""
        return round(self.hours * 3600 / TICK_SECONDS)

    def at(self, tick: int) -> float:
        """Return the start of ``tick`` in epoch seconds."""
        return self.start + tick * TICK_SECONDS


def capacity_changes(market: SpotMarket, ticks: int) -> CapacityChanges:
    """Return the capacity changes of each pool of ``market`` in the first ``ticks`` ticks."""
    changes: dict[str, list[tuple[int, int]]] = {name: [] for name in market.names}
    tick = 0
    while tick < min(ticks, market.ticks):
        for pool, name in enumerate(market.names):
            capacity = market.capacity(pool, tick)
            if not changes[name] or changes[name][-1][1] != capacity:
                changes[name].append((tick, capacity))
        tick = market.next_change(tick)
    return {name: tuple(listed) for name, listed in changes.items()}
