"""What a finished rehearsal is: the facts from which the summary and the page are made."""

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
    ``"script"`` or the trace files; ``pools`` maps each trace to the capacity pool it stands for
    (``type@zone``), ``capacities`` is what each could give (``capacity_changes``). ``resources`` are (type,
    name) pairs. ``ticks_played`` of all ticks had to be computed, in ``wall_seconds`` of real time.
    ``travels`` is how a training job moved, None for a service; ``outcome`` what became of one whose own
    command was run; ``job`` what `gpu-spot jobs show` tells of it at the end.
    ``served`` is what a service's own workers did, where they were run; ``load`` what came of one under load,
    whose scaler moved the ``target`` of the beginning; ``tenancy`` what became of a shared host's tenants.
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
        """Raise ``ValueError`` where the parts don't belong together."""
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
        """The seed of everything drawn by chance."""
        return self.rules.seed

    @property
    def ticks(self) -> int:
        """The simulated ticks."""
        return round(self.hours * 3600 / TICK_SECONDS)

    def at(self, tick: int) -> float:
        """Return the epoch second at which ``tick`` begins."""
        return self.start + tick * TICK_SECONDS


def capacity_changes(market: SpotMarket, ticks: int) -> CapacityChanges:
    """Return what each pool of ``market`` could give in the first ``ticks`` ticks, change by change."""
    changes: dict[str, list[tuple[int, int]]] = {name: [] for name in market.names}
    tick = 0
    while tick < min(ticks, market.ticks):
        for pool, name in enumerate(market.names):
            capacity = market.capacity(pool, tick)
            if not changes[name] or changes[name][-1][1] != capacity:
                changes[name].append((tick, capacity))
        tick = market.next_change(tick)
    return {name: tuple(listed) for name, listed in changes.items()}
