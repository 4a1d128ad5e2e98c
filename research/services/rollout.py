"""Roll out good releases, and ones that fail more, are slower or leak: which are rolled back, and when.

    python -m research.services.rollout [--seeds 1000] [--out FILE] [--docs .]

Every failure rate × slowdown × outage and every kind of memory is played with each seed, the group's size
changing with the seed. The result has a row for each kind of release. Fails if over 1 % of the good releases
are rolled back, or fewer than 99 % of those that fail 10 % of the requests or more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import mean
from typing import Any, Final, TypeAlias

from research.parts import judged_rollouts as world
from research.parts.judged_rollouts import Case, JudgedRollout, Result
from research.parts.page import replace_part, table_of
from research.parts.run import MACHINE, parser_of, verdict, write

FAILURES: Final = (0.01, 0.05, 0.10, 0.45, 1.0)
SLOWDOWNS: Final = (1.0, 1.3, 2.0, 5.0, 20.0)
TARGETS: Final = (2, 8, 20)
MIN_RIGHT: Final = 0.99
GOOD: Final = "good"
FAILS: Final = ("fails 10%", "fails 45%", "fails 100%")

Played: TypeAlias = tuple[Case, Result]


def cases_of(seed: int) -> list[Case]:
    """Return every cell of the matrix, for one of the sizes."""
    target = TARGETS[seed % len(TARGETS)]
    rates = [Case(f, s, outage, target) for f, s, outage in product(FAILURES, SLOWDOWNS, (False, True))]
    return rates + [Case(FAILURES[0], 1.0, False, target, memory) for memory in world.MEMORY][1:]


def play(seed: int) -> list[Played]:
    """Play all cells with a seed."""
    return [(case, JudgedRollout(case, seed).run()) for case in cases_of(seed)]


def kind(case: Case) -> str:
    """Return the row of a case."""
    outage = ", in an outage" * case.has_outage
    if case.failures > FAILURES[0]:
        return f"fails {case.failures:.0%}, up to 20 × slower{outage}"
    if case.slowdown > 1:
        return f"{case.slowdown:g} × slower{outage}"
    return case.memory if case.memory in world.BAD_MEMORY else f"{GOOD}, memory {case.memory}{outage}"


def summarise(played: Iterable[Played]) -> dict[str, Any]:
    """Return a row for each kind of release."""
    kinds: dict[str, list[Result]] = {}
    for case, result in played:
        kinds.setdefault(kind(case), []).append(result)
    rows = [
        {
            "kind": name,
            "cases": len(results),
            "rolled_back": sum(result.verdict == "rejected" for result in results),
            "undecided": sum(result.verdict == "undecided" for result in results),
            "minutes": round(mean(result.seconds for result in results) / 60, 1),
            "requests": round(mean(result.requests for result in results)),
        }
        for name, results in kinds.items()
    ]
    return {"rows": rows, "machine": MACHINE}


def page(result: dict[str, Any]) -> str:
    """Return the benchmark's part of the page."""
    columns = {
        "release": "{kind}",
        "roll-outs": "{cases:,}",
        "rolled back": "{share:.1%}",
        "minutes": "{minutes:.0f}",
        "requests": "{requests:,}",
    }
    return table_of(columns, ({**row, "share": row["rolled_back"] / row["cases"]} for row in result["rows"]))


def mistakes(result: dict[str, Any]) -> list[str]:
    """Return the rows with too many wrong verdicts, of the kinds that the rule looks at."""
    mistakes = []
    for row in result["rows"]:
        share = row["rolled_back"] / row["cases"]
        is_good, fails = row["kind"].startswith(GOOD), row["kind"].startswith(FAILS)
        if (is_good and share > 1 - MIN_RIGHT) or (fails and share < MIN_RIGHT):
            mistakes.append(f"{row['kind']}: {row['rolled_back']} of {row['cases']} rolled back")
    return mistakes


def main() -> int:
    """Run the benchmark."""
    parser = parser_of(__doc__, "rollout", docs=True)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds of each cell (default: 1000)")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        played = [pair for pairs in pool.map(play, range(arguments.seeds), chunksize=4) for pair in pairs]
    result = summarise(played)
    write(arguments.out, result)
    replace_part(arguments.docs, "rollout", page(result))
    return verdict(mistakes(result))


if __name__ == "__main__":
    sys.exit(main())
