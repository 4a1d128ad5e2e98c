"""Data series of the figures over ticks (minutes). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from market.replay.ledger import Happening, Span
from rehearsal.results.run import Run


@dataclass(frozen=True, slots=True)
class Shortage:
    """A period with fewer ready workers than the target; ``lost`` worker-ticks, ``lowest`` ready."""

    tick: int
    ticks: int
    lowest: int
    lost: int
    cause: str


def steps(run: Run) -> list[Span]:
    """Return the spans of a run, those with equal shown values merged, and its last one again at its end."""
    joined: list[Span] = []
    for span in run.ledger.spans:
        last = joined[-1] if joined else None
        if last and _shown(last) == _shown(span):
            joined[-1] = replace(last, ticks=last.ticks + span.ticks)
        else:
            joined.append(span)
    return [*joined, replace(joined[-1], tick=run.ticks, ticks=0)]


def shortages(run: Run) -> list[Shortage]:
    """Return all shortages after the warm-up, in order of time."""
    causes: dict[int, list[str]] = {}
    for loss in losses(run):
        how = "with notice" if loss.kind == "announced" else "without notice"
        cause = f"{loss.count} interrupted {how} in {run.pools[loss.where]}"
        causes.setdefault(loss.tick, []).append(cause)
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


def by_pool(run: Run) -> str:
    """Return the number of interruptions of each pool, in words."""
    counts = dict.fromkeys(run.pools, 0)
    for loss in losses(run):
        counts[loss.where] += loss.count
    return ", ".join(f"{run.pools[name]} {count}" for name, count in counts.items())


def _shown(span: Span) -> tuple[int, int, int, int]:
    return span.ready, span.spot, span.on_demand, span.target


@dataclass(frozen=True, slots=True)
class Interruption:
    """An announced interruption of ``count`` instances of ``pool``, in ticks; one of ``of`` alike.

    ``ended``: the instances were gone. ``on_demand_ready`` and ``spot_ready``: as many On-Demand and as
    many Spot instances had become ready since the ``notice``.
    """

    count: int
    pool: str
    notice: int
    ended: int
    on_demand_ready: int
    spot_ready: int
    of: int = 1


def typical_interruption(run: Run) -> Interruption | None:
    """Return the announced interruption with the median time until Spot is back, None if there is none.

    Those are left out during which other instances were interrupted, or whose Spot came back only after
    ``_WITHIN`` ticks.
    """
    undisturbed = sorted(_undisturbed(run), key=lambda shown: shown.spot_ready - shown.notice)
    return replace(undisturbed[(len(undisturbed) - 1) // 2], of=len(undisturbed)) if undisturbed else None


_WITHIN = 60


def _undisturbed(run: Run) -> Iterator[Interruption]:
    happenings = [event for event in run.ledger.happenings if event.tick >= run.ledger.warm_up]
    for notice in happenings:
        if notice.kind != "notice":
            continue
        after = [event for event in happenings if notice.tick <= event.tick <= notice.tick + _WITHIN]
        ends = [event for event in after if event.kind in {"interruption", "unannounced"}]
        if not ends or ends[0].kind == "unannounced" or ends[0].count != notice.count:
            continue
        on_demand = _reached(after, "ready-on-demand", notice.count)
        spot = _reached(after, "ready-spot", notice.count)
        later_ends = [event for event in ends[1:] if spot is not None and event.tick <= spot]
        if on_demand is not None and spot is not None and on_demand <= spot and not later_ends:
            pool = run.pools[ends[0].where]
            yield Interruption(notice.count, pool, notice.tick, ends[0].tick, on_demand, spot)


def _reached(happenings: Sequence[Happening], kind: str, count: int) -> int | None:
    """Return the tick by which ``count`` instances had become ready."""
    for happening in happenings:
        if happening.kind == kind:
            count -= happening.count
            if count <= 0:
                return happening.tick
    return None
