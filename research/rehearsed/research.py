"""Simulate a training job's day, with and without a data volume: time at work, and lost time by cause.

    python -m research.rehearsed.research [--out FILE] [--stacks research research-efs] [--seeds 1 2 3]
                                      [--hours 24] [--docs .]

The day is the rehearsal of ``gpu-spot demo --stack research``: the agent's own code on simulated machines, in
a market of the fitted model. Durations of EBS and EFS are assumed (``rehearsal/machines/times.py``).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from gpu_spot.declared.stackfile import load
from infra.catalogue.on_demand_prices import replacement_prices
from infra.settings import load_settings
from pulumi_on_moto import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.machines.process import TrainingProfile
from rehearsal.machines.times import Times
from rehearsal.rehearse import ProgressListener, RehearsalOptions, rehearse
from rehearsal.results.moves import PARTS, Cause
from rehearsal.results.summary import summarise
from research.parts.page import replace_part, table, table_of
from research.parts.run import parser_of, write

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = 2
STACKS: Final[Mapping[str, str]] = {
    "research": "A training job's day",
    "research-efs": "The same day without a data volume",
}
"""The stacks, each with the heading of its part of the page."""
EFS_WRITTEN, EFS_READ, EFS_STORED = 0.06, 0.03, 0.30
"""US dollars per GB written, read (elastic throughput) and stored for a month: the page "Amazon EFS
pricing" as public copies have it, us-east-1, read in November 2026."""
_RETAINED_GIB: Final = 3 * TrainingProfile().checkpoint_mib / 1024
CAUSES: Final[Mapping[Cause, str]] = {
    "notice": "interrupted with notice",
    "loss": "interrupted without notice",
    "hand-over": "handed over to Spot",
}


@dataclass(frozen=True)
class Day:
    """One seed's day. ``parts`` are seconds of each move, in order, with its ``causes``; GiB are EFS's."""

    stack: str
    seed: int
    hours: float
    availability: float
    cost: float
    interruptions: int
    causes: tuple[str, ...]
    parts: tuple[Mapping[str, float], ...]
    steps_lost: int
    intact: bool
    written_gib: float
    read_gib: float

    @property
    def moves(self) -> tuple[float, ...]:
        """The seconds of each move."""
        return tuple(sum(part.values()) for part in self.parts)


def day(stack: str, seed: int, hours: float) -> Day:
    """Simulate one day; a process can hold one deployment."""
    config = load(ROOT, stack)
    with simulated(START) as clock, sandbox(config.region, seed) as clients:
        cloud = LocalCloud(clients, deployed(clients, config), clock)
        options = RehearsalOptions(None, hours, (), None, None, 0.9, seed)
        run = rehearse(options, cloud, ProgressListener())
    assert run.migrations is not None
    result: Mapping[str, Any] = summarise(run)
    moves: Sequence[Mapping[str, Any]] = result["moves"]
    return Day(
        stack=stack,
        seed=seed,
        hours=hours,
        availability=result["availability"],
        cost=result["cost_vs_on_demand"],
        interruptions=result["interruptions"],
        causes=tuple(move["cause"] for move in moves),
        parts=tuple(move["parts"] for move in moves),
        steps_lost=sum(move["steps_lost"] for move in moves),
        intact=all(move["content"]["equal"] for move in moves),
        written_gib=run.migrations.written_gib,
        read_gib=run.migrations.read_gib,
    )


def page(days: Sequence[Day]) -> str:
    """Return one stack's part of the page."""
    times, profile = Times(), TrainingProfile()
    seeds = ", ".join(str(day.seed) for day in days)
    everything = [seconds for day in days for seconds in day.moves]
    at_work, cost = fmean(day.availability for day in days), fmean(day.cost for day in days)
    stack = days[0].stack
    return f"""## {STACKS[stack]}

The day of `gpu-spot demo --stack {stack}`, {days[0].hours:g} h, seeds {seeds}, without the first hour. \
On-Demand stands in while Spot is rejected. At work **{100 * at_work:.1f} %** of the time for **{cost:.3f}** \
of the On-Demand cost; a move takes {median(everything):.0f} s (median), {fmean(everything):.0f} s (mean).

{table_of(_OF_A_DAY, map(_row, days))}

Parts of a move (mean seconds, all seeds):

{table(("the instance was", "moves", *PARTS, "total"), _parts(days))}

Of the counted time: {_shares(days)}.

{_of_file_system(days, cost) if any(day.written_gib for day in days) else _of_volume(times)} An agent starts \
180 s after launch. The job: {profile.dataset_gib:g} GiB of dataset, a checkpoint of \
{profile.checkpoint_mib / 1024:g} GiB every {profile.checkpoint_steps * profile.step_seconds / 60:g} \
minutes, {profile.save_seconds:g} s to save, {profile.load_seconds:g} s to load."""


def _of_volume(times: Times) -> str:
    return f"""Assumed, not documented by AWS: a snapshot takes {times.snapshot:g} s, and one for each \
{times.snapshot_mib:g} MiB written since the last one of its chain; a volume is created in \
{times.create:g} s, attached or detached in {times.attach:g} s, kept by a terminating instance for \
{times.dying:g} s; first reads of a copy run at {times.lazy_mib:g} MiB/s."""


def _of_file_system(days: Sequence[Day], cost: float) -> str:
    """Return the cost of EFS and its assumptions."""
    times, profile = Times(), TrainingProfile()
    written, read = fmean(day.written_gib for day in days), fmean(day.read_gib for day in days)
    hours = days[0].hours
    moved = (EFS_WRITTEN * written + EFS_READ * read) * 2**30 / 1e9
    paid = (moved + EFS_STORED * _RETAINED_GIB * hours / 730) * 24 / hours
    [job] = load_settings(load(ROOT, days[0].stack).values).training
    types = job.capacity.types
    hourly = replacement_prices(types, load(ROOT, days[0].stack).region, {}, in_order=True)[types[0]]
    return f"""EFS in addition: {written:.0f} GiB written and {read:.0f} GiB read (mean) cost \
**${paid:.2f} a day**, at ${EFS_WRITTEN:.2f} and ${EFS_READ:.2f} per GB, with {_RETAINED_GIB:g} GiB kept; \
the instances cost ${24 * hourly * cost:.2f} a day ({cost:.3f} of ${hourly:g} an hour). A checkpoint every \
half hour instead of every {profile.checkpoint_steps * profile.step_seconds / 60:g} minutes would cost a \
third.

Assumed, not documented by AWS: one process reads a checkpoint from EFS at {times.efs_mib:g} MiB/s and \
writes one as fast as to a volume; before its first step it waits for {profile.first_batches_mib:g} MiB of \
the dataset's new volume at {times.lazy_mib:g} MiB/s, and later reads do not delay steps; mounting takes no \
time."""


_OF_A_DAY: Final = {
    "seed": "{seed}",
    "at work %": "{availability:.2%}",
    "cost": "{cost:.3f}",
    "interruptions": "{interruptions}",
    "moves": "{count}",
    "a move, s": "{mean}",
}


def _row(day: Day) -> dict[str, Any]:
    mean = f"{fmean(day.moves):.0f}" if day.moves else "–"
    return {**asdict(day), "count": len(day.moves), "mean": mean}


def _parts(days: Iterable[Day]) -> list[tuple[str, ...]]:
    rows = []
    for cause, words in CAUSES.items():
        matching = [p for day in days for c, p in zip(day.causes, day.parts, strict=True) if c == cause]
        if matching:
            cells = [f"{fmean(move[part] for move in matching):.0f}" for part in PARTS]
            total = f"{fmean(sum(move.values()) for move in matching):.0f}"
            rows.append((words, str(len(matching)), *cells, total))
    return rows


def _shares(days: Sequence[Day]) -> str:
    """Return each part's share of the counted time, and the unexplained rest."""
    counted = sum(3600 * (day.hours - 1) for day in days)
    missing = 1 - fmean(day.availability for day in days)
    shares = {part: sum(m[part] for day in days for m in day.parts) / counted for part in PARTS}
    text = ", ".join(f"{part} {100 * share:.2f} %" for part, share in shares.items())
    lost = sum(shares.values())
    return (
        f"{text}; total {100 * lost:.2f} %. Availability above lacks only {100 * missing:.2f} %: it counts "
        "whole minutes, and a job reports while it saves and loads"
    )


def main() -> None:
    """Simulate all days and write the results."""
    parser = parser_of(__doc__, "research")
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--docs", type=Path, help="a checkout, whose page is rewritten")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    runs_to_play = [(stack, seed, args.hours) for stack in args.stacks for seed in args.seeds]
    with ProcessPoolExecutor(WORKERS, mp_context=context, max_tasks_per_child=1) as pool:
        days = list(pool.map(day, *zip(*runs_to_play, strict=True)))
    write(args.out, [asdict(played_day) for played_day in days])
    for stack in args.stacks:
        text = page([played_day for played_day in days if played_day.stack == stack])
        print(text)
        if args.docs:
            replace_part(args.docs, stack, text)


if __name__ == "__main__":
    main()
