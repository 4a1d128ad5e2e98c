"""Data series of the figures over ticks (minutes). Pure; the number of points is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from market.replay.ledger import Happening, Span
from rehearsal.results.run import Run

STEPS: Final = 2500
"""Maximum number of distinct spans; above it, a timeline shows averages over equal intervals."""

STRETCHES: Final = 1200
BINS: Final = 60
SHORTAGES: Final = 400

_BIN_TICKS: Final = tuple(60 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168))


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """From ``tick`` to the next step: mean of ready workers, billed Spot and On-Demand, and target."""

    tick: int
    ready: float
    spot: float
    on_demand: float
    target: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """A period with fewer ready workers than the target; ``lost`` worker-ticks, ``lowest`` ready."""

    tick: int
    ticks: int
    lowest: int
    lost: int
    cause: str


@dataclass(frozen=True, slots=True)
class Money:
    """Cost from the end of the warm-up until ``tick``, in On-Demand instance-hours."""

    tick: int
    spot: float
    on_demand: float
    all_on_demand: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Number of interrupted instances, in an interval or a pool."""

    announced: int = 0
    unannounced: int = 0

    def __add__(self, loss: Happening) -> Lost:
        is_announced = loss.kind == "announced"
        return Lost(
            self.announced + loss.count * is_announced, self.unannounced + loss.count * (not is_announced)
        )


def stretch(run: Run, limit: int = STEPS) -> int:
    """Return the number of ticks that ``steps`` averages; 1: every change is shown."""
    return 1 if len(_distinct(run.ledger.spans)) <= limit else math.ceil(run.ticks / STRETCHES)


def steps(run: Run, limit: int = STEPS) -> list[TimelineStep]:
    """Return the timeline of a run, with a final step at its end."""
    spans, width = _distinct(run.ledger.spans), stretch(run, limit)
    if width == 1:
        timeline = [TimelineStep(s.tick, s.ready, s.spot, s.on_demand, s.target) for s in spans]
    else:
        timeline = [_mean(part) for _, part in _buckets(spans, width)]
    return [*timeline, replace(timeline[-1], tick=run.ticks)]


def shortages(run: Run) -> list[Shortage]:
    """Return all shortages after the warm-up, in order of time."""
    causes: dict[int, list[str]] = {}
    for loss in losses(run):
        causes.setdefault(loss.tick, []).append(_cause(loss, run))
    result: list[Shortage] = []
    for span in run.ledger.since_warm_up():
        missing = span.target - span.ready
        if missing <= 0:
            continue
        last = result[-1] if result else None
        if last is not None and last.tick + last.ticks == span.tick:
            result[-1] = replace(
                last,
                ticks=last.ticks + span.ticks,
                lowest=min(last.lowest, span.ready),
                lost=last.lost + missing * span.ticks,
            )
        else:
            cause = ", ".join(causes.get(span.tick, ()))
            result.append(Shortage(span.tick, span.ticks, span.ready, missing * span.ticks, cause))
    return result


def worst(shortages_: Sequence[Shortage]) -> list[Shortage]:
    """Return the at most ``SHORTAGES`` largest shortages, in order of time."""
    return sorted(sorted(shortages_, key=lambda s: -s.lost)[:SHORTAGES], key=lambda s: s.tick)


def money(run: Run) -> list[Money]:
    """Return the cumulative cost, from zero at the end of the warm-up."""
    warm_up = min(run.ledger.warm_up, run.ticks)
    width = max(1, math.ceil(run.ticks / STRETCHES))
    account = [Money(warm_up, 0.0, 0.0, 0.0)]
    for _, part in _buckets(list(run.ledger.since_warm_up()), width):
        last, end = account[-1], part[-1].tick + part[-1].ticks
        account.append(
            Money(
                end,
                last.spot + sum((s.cost - s.on_demand) * s.ticks for s in part) / 60,
                last.on_demand + sum(s.on_demand * s.ticks for s in part) / 60,
                last.all_on_demand + sum(s.target * s.ticks for s in part) / 60,
            )
        )
    return account


def bin_ticks(run: Run) -> int:
    """Return the width of the bars in ticks, for at most ``BINS`` bars."""
    return next((width for width in _BIN_TICKS if run.ticks / width <= BINS), _BIN_TICKS[-1])


def spending(run: Run) -> list[tuple[int, int, float, float]]:
    """Return (tick, ticks, Spot, On-Demand) by bin: cost as fractions of all On-Demand."""
    bins = []
    for _, part in _buckets(list(run.ledger.since_warm_up()), bin_ticks(run)):
        length = sum(s.ticks for s in part)
        whole = max(1, sum(s.target * s.ticks for s in part))
        spot = sum((s.cost - s.on_demand) * s.ticks for s in part) / whole
        bins.append((part[0].tick, length, spot, sum(s.on_demand * s.ticks for s in part) / whole))
    return bins


def losses(run: Run) -> list[Happening]:
    """Return the interruptions after the warm-up, by kind ``announced`` or ``unannounced``."""
    announced: dict[tuple[int, str], int] = {}
    result: list[Happening] = []
    for happening in run.ledger.happenings:
        if happening.tick < run.ledger.warm_up:
            continue
        key = happening.tick, happening.where
        if happening.kind == "interruption":
            announced[key] = announced.get(key, 0) + happening.count
        elif happening.kind == "unannounced":
            announced[key] = announced.get(key, 0) - happening.count
            result.append(happening)
    result.extend(
        Happening(tick, "announced", count, where) for (tick, where), count in announced.items() if count
    )
    return sorted(result, key=lambda h: h.tick)


def lost_over_time(run: Run) -> dict[int, Lost]:
    """Return the number of interruptions by bin (its first tick)."""
    width = bin_ticks(run)
    bins = dict.fromkeys(range(0, run.ticks, width), Lost())
    for loss in losses(run):
        bins[loss.tick // width * width] += loss
    return bins


def lost_by_pool(run: Run) -> dict[str, Lost]:
    """Return the number of interruptions by trace."""
    pools = dict.fromkeys(run.pools, Lost())
    for loss in losses(run):
        pools[loss.where] += loss
    return pools


def capacity_grid(run: Run) -> tuple[list[int], list[list[float]]]:
    """Return edges in ticks and, by pool, the mean capacity between consecutive edges."""
    moments = {tick for changes in run.capacities.values() for tick, _ in changes if tick < run.ticks}
    edges = sorted({0, *moments, run.ticks})
    if len(edges) > STEPS:
        edges = [*range(0, run.ticks, math.ceil(run.ticks / STRETCHES)), run.ticks]
    return edges, [_means(run.capacities[name], edges) for name in run.pools]


def _means(changes: Sequence[tuple[int, int]], edges: Sequence[int]) -> list[float]:
    means, index = [], 0
    for begin, end in pairwise(edges):
        total, tick = 0, begin
        while tick < end:
            while index + 1 < len(changes) and changes[index + 1][0] <= tick:
                index += 1
            segment_end = min(end, changes[index + 1][0]) if index + 1 < len(changes) else end
            total += changes[index][1] * (segment_end - tick)
            tick = segment_end
        means.append(total / (end - begin))
    return means


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """Merge consecutive spans with equal shown values."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and _shown(last) == _shown(span):
            joined[-1] = replace(last, ticks=last.ticks + span.ticks)
        else:
            joined.append(span)
    return joined


def _shown(span: Span) -> tuple[int, int, int, int]:
    return span.ready, span.spot, span.on_demand, span.target


def _buckets(spans: Sequence[Span], width: int) -> Iterator[tuple[int, list[Span]]]:
    """Split spans at multiples of ``width`` and yield the spans of each bucket."""
    current, part = -1, list[Span]()
    for span in spans:
        tick, end = span.tick, span.tick + span.ticks
        while tick < end:
            bucket = tick // width
            if bucket != current and part:
                yield current, part
                part = []
            current = bucket
            segment_end = min(end, (bucket + 1) * width)
            part.append(replace(span, tick=tick, ticks=segment_end - tick))
            tick = segment_end
    if part:
        yield current, part


def _mean(part: Sequence[Span]) -> TimelineStep:
    length = sum(s.ticks for s in part)
    ready, spot, on_demand, target = (
        round(sum(getattr(s, name) * s.ticks for s in part) / length, 3)
        for name in ("ready", "spot", "on_demand", "target")
    )
    return TimelineStep(part[0].tick, ready, spot, on_demand, target)


def _cause(loss: Happening, run: Run) -> str:
    how = "with notice" if loss.kind == "announced" else "without notice"
    return f"{loss.count} interrupted {how} in {run.pools[loss.where]}"
