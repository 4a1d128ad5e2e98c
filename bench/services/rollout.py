"""Roll out releases that fail more, are slower or leak: how often the verdict is right, and what it costs.

    python -m bench.services.rollout [--seeds 1000] [--out FILE] [--docs docs]

Every failure rate × slowdown × outage and every kind of memory is played with each seed, the group's size
changing with the seed.
The result has ``cases``, ``right`` and ``good_refused``, a row for each cell, and ``lost``: the cells with a
wrong verdict, by size. Fails if in a cell, over all sizes, fewer than 99 % of the verdicts are right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Final, TypeAlias

from bench.parts import judged_rollouts as world
from bench.parts.judged_rollouts import Case, JudgedRollout, Result
from bench.parts.page import replace_part, table
from bench.parts.run import MACHINE, parser_of, verdict, write
from lambdas.core.rollout.sequential_test import MIN_HARMFUL_DIFFERENCE, SLOWDOWN

FAILURES: Final = (0.01, 0.05, 0.10, 0.45, 1.0)
SLOWDOWNS: Final = (1.0, 1.3, 2.0, 5.0, 20.0)
TARGETS: Final = (2, 8, 20)
MIN_RIGHT: Final = 0.99

Played: TypeAlias = tuple[Case, Result]
_Key: TypeAlias = tuple[float, float, bool, str]
USUAL_MEMORY: Final = next(iter(world.MEMORY))


def cases_of(seed: int) -> list[Case]:
    """Return every cell of the matrix, for one of the sizes."""
    target = TARGETS[seed % len(TARGETS)]
    rates = [Case(f, s, outage, target) for f, s, outage in product(FAILURES, SLOWDOWNS, (False, True))]
    return rates + [Case(FAILURES[0], 1.0, False, target, memory) for memory in world.MEMORY][1:]


def play(seed: int) -> list[Played]:
    """Play all cells with a seed."""
    return [(case, JudgedRollout(case, seed).run()) for case in cases_of(seed)]


def summarise(played: Iterable[Played]) -> dict[str, Any]:
    """Return the counts over all cases, and a row for each cell."""
    cells: dict[_Key, list[Played]] = {}
    sized: dict[Case, list[Played]] = {}
    sizes: dict[int, list[bool]] = {}
    for case, result in played:
        cells.setdefault(_key(case), []).append((case, result))
        sized.setdefault(case, []).append((case, result))
        sizes.setdefault(case.target, []).append(result.is_right(case))
    everything = [pair for members in cells.values() for pair in members]
    good = [result for case, result in everything if not case.is_bad]
    rows = [_row(key, members) for key, members in sorted(cells.items())]
    groups = [{"target": case.target, **_row(_key(case), members)} for case, members in sized.items()]
    return {
        "cases": len(everything),
        "right": sum(result.is_right(case) for case, result in everything),
        "good": len(good),
        "good_refused": sum(result.verdict == "rejected" for result in good),
        "undecided": sum(result.verdict == "undecided" for _, result in everything),
        "right_by_size": {size: sum(right) / len(right) for size, right in sorted(sizes.items())},
        "lost": [row for row in groups if row["right"] < row["cases"]],
        "cells": rows,
        "machine": MACHINE,
    }


def _key(case: Case) -> _Key:
    return case.failures, case.slowdown, case.has_outage, case.memory


def _row(key: _Key, members: Sequence[Played]) -> dict[str, Any]:
    results = [result for _, result in members]
    return {
        "failures": key[0],
        "slowdown": key[1],
        "outage": key[2],
        "memory": key[3],
        "is_bad": members[0][0].is_bad,
        "cases": len(members),
        "right": sum(result.is_right(case) for case, result in members),
        "minutes": round(mean(result.seconds for result in results) / 60, 1),
        "requests": round(mean(result.requests for result in results)),
        "failed": round(mean(result.failed for result in results)),
        "outage_minutes": round(mean(result.outage_passes for result in results), 1),
    }


def page(result: dict[str, Any]) -> str:
    """Return the benchmark's part of the page."""
    bad = [row for row in result["cells"] if row["is_bad"]]
    worst = min(result["cells"], key=lambda row: row["right"] / row["cases"])
    lost = "; ".join(
        f"{row['target']} workers, {row['failures']:.0%} failures, × {row['slowdown']:g}"
        f"{', outage' * row['outage']}, memory {row['memory']}: "
        f"{row['cases'] - row['right']} of {row['cases']}"
        for row in result["lost"]
    )
    sizes = ", ".join(f"{size}: {share:.2%}" for size, share in result["right_by_size"].items())
    head = (
        "failures, slowdown",
        "right",
        "requests",
        "failed",
        "minutes",
        "in an outage",
        "requests",
        "minutes",
    )
    max_requests = max(row["requests"] for row in bad)
    paragraphs = (
        "## Roll-outs judged by rates",
        f"`make bench-rollout`: a release is bad if {MIN_HARMFUL_DIFFERENCE:.0%} of the requests or more "
        f"fail in addition to the stable release's {world.USUAL_FAILURES:.1%}, if a batch takes "
        f"{SLOWDOWN:g} times as long or longer, or if its workers' memory will be full. "
        f"Of {result['cases']:,} roll-outs, "
        f"{result['cases'] // len(result['cells'])} of each cell, "
        f"**{result['right'] / result['cases']:.2%} ended right**; of {result['good']:,} good releases "
        f"{result['good_refused']} were rolled back, and {result['undecided']} roll-outs stayed undecided. "
        f"By size of the group: {sizes}. The worst cell over all sizes: "
        f"{worst['right'] / worst['cases']:.1%}. Wrong: {lost or 'none'}.",
        f"Batches of up to {world.MAX_BATCH} requests take {world.FIXED_SECONDS:g} s and "
        f"{world.REQUEST_SECONDS:g} s for each request, with a coefficient of variation of "
        f"{world.SPREAD:g}; {world.RATE:g} requests a second come for each worker; of two instance types, "
        f"those of a type differ by {world.HOST_SPREAD:.0%} (standard deviation). An outage of "
        f"{world.OUTAGE_SECONDS / 60:.0f} minutes begins between 5 minutes before and 20 minutes after the "
        "first start: 60 % of all requests fail, or all, three times as fast, as usual or at a third of the "
        "speed. Requests are those that the release ended until it was rolled back or ran on all instances "
        f"(means; at most {max_requests:,} for a bad release), minutes those since its first start.",
        table(head, _lines(result["cells"])),
        f"By memory, without other faults: of what a worker may use the stable release's has "
        f"{world.USUAL_MEMORY.level:.0%} and a cache of {world.USUAL_MEMORY.cache:.0%}, peaks vary by "
        f"{world.MEMORY_SPREAD:.0%}, and a worker at 100 % is killed.",
        table(("memory", "right", "minutes"), _memory_lines(result["cells"])),
    )
    return "\n\n".join(paragraphs)


def _lines(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    usual = [row for row in cells if row["memory"] == USUAL_MEMORY]
    by_key = {(row["failures"], row["slowdown"], row["outage"]): row for row in usual}
    lines = []
    for failures, slowdown in product(FAILURES, SLOWDOWNS):
        calm, outage = by_key[failures, slowdown, False], by_key[failures, slowdown, True]
        name = f"{failures:.0%}, × {slowdown:g}"
        lines.append(
            [
                name if calm["is_bad"] else f"**{name}** (good)",
                f"{calm['right'] / calm['cases']:.1%}",
                f"{calm['requests']:,}",
                f"{calm['failed']:,}",
                f"{calm['minutes']:.0f}",
                f"{outage['right'] / outage['cases']:.1%}",
                f"{outage['requests']:,}",
                f"{outage['minutes']:.0f}",
            ]
        )
    return lines


def _memory_lines(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = {row["memory"]: row for row in cells if row["memory"] != USUAL_MEMORY}
    return [
        [
            name if row["is_bad"] else f"**{name}** (good)",
            f"{row['right'] / row['cases']:.1%}",
            f"{row['minutes']:.0f}",
        ]
        for name in world.MEMORY
        if (row := rows.get(name)) is not None
    ]


def publish(result: dict[str, Any], out: Path, docs: Path) -> int:
    """Write result and page; return the exit code."""
    write(out, result)
    replace_part(docs / "performance.md", "rollout", page(result))
    return verdict(
        [
            f"{row['failures']:.0%} failures × {row['slowdown']:g}, memory {row['memory']}: "
            f"{row['right']} of {row['cases']} right"
            for row in result["cells"]
            if row["right"] < MIN_RIGHT * row["cases"]
        ]
    )


def main() -> int:
    """Run the benchmark."""
    parser = parser_of(__doc__, "rollout", docs=True)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds of each cell (default: 1000)")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        played = [pair for pairs in pool.map(play, range(arguments.seeds), chunksize=4) for pair in pairs]
    return publish(summarise(played), arguments.out, arguments.docs)


if __name__ == "__main__":
    sys.exit(main())
