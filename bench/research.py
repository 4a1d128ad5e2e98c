"""Play the research stack's day: how much of the time its job is at work, and where the rest went.

    python -m bench.research [--out FILE] [--seeds 1 2 3] [--hours 24] [--docs docs]

The day is the rehearsal's (``gpu-spot demo --stack research``): the agent's own code on simulated machines,
in a market of the fitted model. What EBS takes is assumed (``gpu_spot/nodes/times.py``), by what changed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from bench._page import replace_part, table
from gpu_spot.commands import project
from gpu_spot.commands.demo import START
from gpu_spot.facts.moves import PARTS, Cause
from gpu_spot.facts.summary import summarise
from gpu_spot.live.cloud import LocalCloud
from gpu_spot.live.rehearsal import Scene, Wishes, rehearse
from gpu_spot.market.replay.ledger import Span
from gpu_spot.nodes.process import TrainingProfile
from gpu_spot.nodes.times import Times
from pulumi_on_moto import load, sandbox
from pulumi_on_moto.running.clock import simulated

ROOT: Final = Path(__file__).parents[1]
WORKERS: Final = 2
CAUSES: Final[Mapping[Cause, str]] = {
    "notice": "announced two minutes ahead",
    "loss": "taken without notice",
    "hand-over": "handed over to spot",
}


@dataclass(frozen=True)
class Day:
    """One seed's day. ``parts`` are seconds of each move, in order, with its ``causes``."""

    seed: int
    hours: float
    availability: float
    cost: float
    interruptions: int
    causes: tuple[str, ...]
    parts: tuple[Mapping[str, float], ...]
    steps_lost: int
    intact: bool

    @property
    def moves(self) -> tuple[float, ...]:
        """The seconds of each move."""
        return tuple(sum(one.values()) for one in self.parts)


class _Nobody:
    """Watches nothing."""

    def begin(self, scene: Scene) -> None:
        """See ``Onlooker``."""

    def see(self, tick: int, span: Span) -> None:
        """See ``Onlooker``."""


def day(seed: int, hours: float) -> Day:
    """Play one; a process holds one deployment."""
    config = load(ROOT, "research")
    with simulated(START) as clock, sandbox(config.region, seed) as clients:
        cloud = LocalCloud(clients, project.deployed(clients, config), clock)
        wishes = Wishes(None, hours, (), None, None, 0.9, seed)
        told: Mapping[str, Any] = summarise(rehearse(wishes, cloud, _Nobody(), 0.0))
    moves: Sequence[Mapping[str, Any]] = told["moves"]
    return Day(
        seed=seed,
        hours=hours,
        availability=told["availability"],
        cost=told["cost_vs_on_demand"],
        interruptions=told["interruptions"],
        causes=tuple(move["cause"] for move in moves),
        parts=tuple(move["parts"] for move in moves),
        steps_lost=sum(move["steps_lost"] for move in moves),
        intact=all(move["content"]["equal"] for move in moves),
    )


def page(days: Sequence[Day]) -> str:
    """Return the part of docs/performance.md."""
    times, profile = Times(), TrainingProfile()
    seeds = ", ".join(str(one.seed) for one in days)
    everything = [seconds for one in days for seconds in one.moves]
    at_work, cost = fmean(one.availability for one in days), fmean(one.cost for one in days)
    return f"""## A training job's day

`make demo-research`'s day of {days[0].hours:g} h, seeds {seeds}; the first hour is not counted. \
On-demand stands in while spot is refused. At work **{100 * at_work:.1f} %** of the time for **{cost:.3f}** \
of on-demand; a move takes {median(everything):.0f} s in the median, {fmean(everything):.0f} s in the mean.

{table(("seed", "at work %", "cost", "interruptions", "moves", "a move, s"), map(_row, days))}

Where the time of a move goes (mean seconds, all seeds):

{table(("the instance was", "moves", *PARTS, "together"), _parts(days))}

Of the counted time: {_shares(days)}.

Assumed, because nobody promises it: a snapshot takes {times.snapshot:g} s, and one for each \
{times.snapshot_mib:g} MiB written since the last one of its chain; a volume is created in \
{times.create:g} s, attached or detached in {times.attach:g} s, kept by a dying instance for \
{times.dying:g} s; first reads of a copy come at {times.lazy_mib:g} MiB/s; an agent starts 180 s after its \
launch. The job: {profile.dataset_gib:g} GiB of dataset, a checkpoint of \
{profile.checkpoint_mib / 1024:g} GiB every {profile.checkpoint_steps * profile.step_seconds / 60:g} \
minutes, {profile.save_seconds:g} s to save, {profile.load_seconds:g} s to load."""


def _row(one: Day) -> tuple[str, ...]:
    mean = f"{fmean(one.moves):.0f}" if one.moves else "–"
    return (
        str(one.seed),
        f"{100 * one.availability:.2f}",
        f"{one.cost:.3f}",
        str(one.interruptions),
        str(len(one.moves)),
        mean,
    )


def _parts(days: Iterable[Day]) -> list[tuple[str, ...]]:
    rows = []
    for cause, words in CAUSES.items():
        found = [p for one in days for c, p in zip(one.causes, one.parts, strict=True) if c == cause]
        if found:
            cells = [f"{fmean(move[part] for move in found):.0f}" for part in PARTS]
            total = f"{fmean(sum(move.values()) for move in found):.0f}"
            rows.append((words, str(len(found)), *cells, total))
    return rows


def _shares(days: Sequence[Day]) -> str:
    """Return what each part took of the counted time, and what no move explains."""
    counted = sum(3600 * (one.hours - 1) for one in days)
    missing = 1 - fmean(one.availability for one in days)
    shares = {part: sum(m[part] for one in days for m in one.parts) / counted for part in PARTS}
    told = ", ".join(f"{part} {100 * share:.2f} %" for part, share in shares.items())
    lost = sum(shares.values())
    return (
        f"{told}; together {100 * lost:.2f} %. The account above misses only {100 * missing:.2f} %: it "
        "counts whoever reports in whole minutes, and a job reports while it saves and while it loads"
    )


def main() -> None:
    """Play all days and write what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--docs", type=Path, help="folder of performance.md; its part is written anew")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context, max_tasks_per_child=1) as pool:
        days = list(pool.map(day, args.seeds, [args.hours] * len(args.seeds)))
    print(page(days))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps([asdict(one) for one in days], indent=2) + "\n")
    if args.docs:
        replace_part(args.docs / "performance.md", "research", page(days))


if __name__ == "__main__":
    main()
