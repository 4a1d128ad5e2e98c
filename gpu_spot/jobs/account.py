"""The account of a run, finished or so far: what it cost and lost. The sums of its parts are its totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_spot.jobs.prices import Charge, PriceBook
from gpu_spot.jobs.timeline import PHASES, JobTimeline, RunPhase

UNKNOWN_MARKET = "unknown"


@dataclass(frozen=True, slots=True)
class PoolCharge:
    """The time of a run's instances of one market (purchase option), type and zone."""

    market: str
    instance_type: str
    zone: str
    charge: Charge


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What a run cost and lost until ``at`` (epoch seconds). Durations are seconds of instance time.

    Attributes:
        is_over: Whether it has ended; else the account is that of the run so far.
        pools: By market, type and zone.
        phases: The same time by phase.
        elapsed_seconds: From the first launch until the end, or until ``at``.
        waiting_seconds: Part of it without an instance that has or awaits the job.
        lost_seconds: Work done again, since the last checkpoint before each end.
        repeated_steps: Steps done again; without those of ``unreported_attempts``, which reported none.
        price_sources: Dates and sources of the list prices.
        is_cut: Earlier attempts are missing, see `JobTimeline`.
    """

    at: float
    is_over: bool
    pools: tuple[PoolCharge, ...]
    phases: Mapping[RunPhase, float]
    elapsed_seconds: float
    waiting_seconds: float
    interruptions: int
    lost_seconds: float
    repeated_steps: int
    unreported_attempts: int
    price_sources: tuple[str, ...]
    is_cut: bool

    @property
    def total(self) -> Charge:
        """Time and cost of all instances."""
        return _sum(pool.charge for pool in self.pools)

    @property
    def markets(self) -> dict[str, Charge]:
        """Time and cost by market."""
        names = dict.fromkeys(pool.market for pool in self.pools)
        return {name: _sum(pool.charge for pool in self.pools if pool.market == name) for name in names}

    @property
    def saved_dollars(self) -> float | None:
        """Dollars less than On-Demand; None if a part has no price."""
        total = self.total
        if total.unpriced_seconds or total.unlisted_seconds:
            return None
        return total.list_dollars - total.dollars


def account_of(timeline: JobTimeline, prices: PriceBook, *, at: float, is_over: bool) -> RunAccount:
    """Return the account of a run's timeline at the time ``at`` (epoch seconds)."""
    charges: dict[tuple[str, str, str], Charge] = {}
    phases: dict[RunPhase, float] = {}
    for attempt in timeline.attempts:
        record = attempt.attempt
        key = (record.purchase_option or UNKNOWN_MARKET, record.instance_type, record.zone)
        charges[key] = charges.get(key, Charge()) + attempt.charge
        for phase, seconds in attempt.phases.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    periods = sorted((attempt.attempt.launched, attempt.charged_until) for attempt in timeline.attempts)
    elapsed, with_instance = _elapsed(periods, at, is_over=is_over)
    repeated = [attempt.repeated_steps for attempt in timeline.attempts]
    return RunAccount(
        at=at,
        is_over=is_over,
        pools=tuple(PoolCharge(*key, charges[key]) for key in sorted(charges, key=_order)),
        phases={phase: phases[phase] for phase in PHASES if phase in phases},
        elapsed_seconds=elapsed,
        waiting_seconds=elapsed - with_instance,
        interruptions=timeline.interruptions,
        lost_seconds=timeline.lost_seconds,
        repeated_steps=sum(steps or 0 for steps in repeated),
        unreported_attempts=repeated.count(None),
        price_sources=tuple(sorted({prices.source_of(kind) for _, kind, _ in charges} - {""})),
        is_cut=timeline.is_cut,
    )


def to_json(account: RunAccount) -> dict[str, Any]:
    """Return an account as JSON values; null is unknown."""
    total = account.total
    return {
        "at": account.at,
        "is_over": account.is_over,
        "pools": [
            {"market": pool.market, "type": pool.instance_type, "zone": pool.zone, **_charge(pool.charge)}
            for pool in account.pools
        ],
        "markets": {market: _charge(charge) for market, charge in account.markets.items()},
        "total": _charge(total),
        "saved_usd": None if account.saved_dollars is None else round(account.saved_dollars, 4),
        "price_sources": list(account.price_sources),
        "phases_seconds": dict(account.phases),
        "elapsed_seconds": account.elapsed_seconds,
        "waiting_seconds": account.waiting_seconds,
        "interruptions": account.interruptions,
        "lost_seconds": account.lost_seconds,
        "repeated_steps": account.repeated_steps,
        "unreported_attempts": account.unreported_attempts,
        "is_cut": account.is_cut,
    }


def _charge(charge: Charge) -> dict[str, Any]:
    return {
        "seconds": charge.seconds,
        "cost_usd": round(charge.dollars, 4),
        "on_demand_usd": round(charge.list_dollars, 4),
        "assumed_seconds": charge.assumed_seconds,
        "unpriced_seconds": charge.unpriced_seconds,
        "unlisted_seconds": charge.unlisted_seconds,
    }


def _sum(charges: Iterable[Charge]) -> Charge:
    return sum(charges, Charge())


def _order(key: tuple[str, str, str]) -> tuple[int, tuple[str, str, str]]:
    markets = ("spot", "on-demand")
    return (markets.index(key[0]) if key[0] in markets else len(markets)), key


def _elapsed(periods: list[tuple[float, float]], at: float, *, is_over: bool) -> tuple[float, float]:
    """Return the seconds from the first launch to the end, and those of them with an instance."""
    if not periods:
        return 0.0, 0.0
    begin = covered_until = periods[0][0]
    with_instance = 0.0
    for since, end_at in periods:
        with_instance += max(0.0, end_at - max(since, covered_until))
        covered_until = max(covered_until, end_at)
    return (covered_until if is_over else max(covered_until, at)) - begin, with_instance
