"""One pass of the health checker over a service of growing size (``make bench-health``).

The AWS calls are answered from memory, with pages as in AWS, and counted. Measured are our own time and the
number of calls of a pass. In a quiet pass all instances are healthy; in a busy one a tenth of them are
unhealthy, with different symptoms, up to the budget.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from contracts import names
from contracts.registry.item import Worker
from lambdas.aws.health.checker import HealthOutcome
from research.parts.run import MACHINE, parser_of, verdict, write
from tests.fakes.aws import GROUP, PAGE, FakeAws
from tests.health.simulated_group import with_report

SIZES = (10, 1_000, 10_000)
MOST_MORE = 5
"""Two writes of the memory, replacement requests, instances in service, a message."""
MOST_ITEM_BYTES = 400_000
"""Maximum size of a DynamoDB item in bytes."""
_WAYS: Sequence[Callable[[Worker], Worker]] = (
    lambda worker: with_report(worker, xid=79),
    lambda worker: replace(worker, heartbeat=worker.heartbeat - 600),
)


def measure(size: int, share: float) -> dict[str, Any]:
    """Return time and calls of one pass with a ``share`` of unhealthy instances."""
    aws = FakeAws()
    ids = aws.add(size)
    checker = aws.checker()
    _ok(checker.run(_SECONDS))
    unhealthy = frozenset(ids[: int(size * share)])
    for n, instance_id in enumerate(unhealthy):
        aws.change(GROUP, instance_id, _WAYS[n % len(_WAYS)])
    for seconds in (60, 150):
        aws.now += seconds
        aws.send_heartbeats(unhealthy)
        aws.calls.clear()
        started = time.perf_counter()
        _ok(checker.run(_SECONDS))
        pass_ms = (time.perf_counter() - started) * 1000
    calls = dict(sorted(aws.calls.items()))
    pages = sum(calls[name] - 1 for name in calls.keys() & PAGE.keys())
    memory = aws.memory.get(names.health_memory(GROUP), {}).get("memory", {"S": ""})
    return {
        "pass_ms": round(pass_ms, 1),
        "calls": calls,
        "calls_total": sum(calls.values()),
        "calls_beyond_further_pages": sum(calls.values()) - pages,
        "memory_bytes": len(memory["S"]),
        "requests": len(aws.replacement_requests()),
    }


def _ok(outcomes: Sequence[HealthOutcome]) -> None:
    for outcome in outcomes:
        for error in outcome.errors:
            raise error


def figures(sizes: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return every measurement: by scene, then by size."""
    return {
        case: {str(size): measure(size, share) for size in sizes}
        for case, share in (("quiet", 0.0), ("a tenth unhealthy", 0.1))
    }


def broken(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return violations, one line each: calls that grow faster than pages, the item's size."""
    lines = []
    quiet = {at["calls_beyond_further_pages"] for at in results["quiet"].values()}
    if len(quiet) > 1:
        lines.append(f"quiet: calls beyond further pages are {sorted(quiet)}, not equal")
    for case, sizes in results.items():
        for size, at in sizes.items():
            more = at["calls_beyond_further_pages"] - min(quiet)
            if more > MOST_MORE:
                lines.append(f"{case}, {size}: {more} calls more than a quiet pass")
            if at["memory_bytes"] > MOST_ITEM_BYTES:
                lines.append(f"{case}, {size}: memory has {at['memory_bytes']} bytes")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "health")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    options = parser.parse_args(arguments)
    results = figures(options.sizes)
    problems = broken(results)
    write(options.out, {"machine": MACHINE, "scenes": results, "broken": problems})
    print(f"{'':14}{'instances':>10}{'pass ms':>10}{'calls':>7}{'requests':>9}{'memory B':>10}")
    for case, sizes in results.items():
        for size, at in sizes.items():
            print(
                f"{case:14}{size:>10}{at['pass_ms']:10.1f}{at['calls_total']:7}{at['requests']:9}"
                f"{at['memory_bytes']:10}"
            )
    return verdict(problems)


_SECONDS = 50.0

if __name__ == "__main__":
    sys.exit(main())
