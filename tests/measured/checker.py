"""One pass of the availability checker over groups of growing size (``make bench-checker``).

The stub of the adapters' tests answers the AWS calls from memory, with pages as in AWS, and counts every
page. Measured are our own time and the number of calls of a pass. ``decide_ms`` is CPU time.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lambdas.aws.budget import UNLIMITED
from lambdas.aws.capacity.controller import Controller, GroupOutcome
from lambdas.aws.settings import parse
from lambdas.core.capacity import policies
from lambdas.core.capacity.availability import decide
from lambdas.core.events import Event, InterruptionNotice
from research.parts.run import MACHINE, parser_of, verdict, write
from tests.fakes.aws import GROUP, PAGE, ROOT, FakeAws, config
from tests.lambdas import many_groups
from tests.lambdas.single_group import NOW, controller

SIZES = (10, 100, 1_000, 10_000)
KINDS = {"mixed-asg": "primary", "spot-fleet": "sfr-73fbd2ce-aa30-494c-8788-1cee4EXAMPLE"}
STACKS = ((200, 10), (250, 10), (1_000, 10), (1, 5_000))
"""Numbers of groups, and of instances in each."""
_MINUTES = 5
MOST_UNDECIDED_SECONDS = 180
REPEATS = 7
MOST_DECIDE_MS = 50.0
MOST_ITEM_BYTES = 400_000
"""Maximum size of a DynamoDB item in bytes."""


@dataclass(frozen=True)
class Case:
    """A group in ``FakeAws``, the events that invoke the checker, and its stored memory."""

    aws: FakeAws
    controller: Controller
    events: Sequence[Event]


def make_case(kind: str, size: int, policy: str, noticed: int) -> Case:
    """Return a full group of ``size`` ready Spot instances; the first ``noticed`` have a notice."""
    primary = KINDS[kind]
    text = config(kind=kind, primary=primary, max=2 * size, policy={"name": policy, "parameters": {}})
    aws = FakeAws(parameters={f"{ROOT}/{GROUP}/config": text, f"{ROOT}/{GROUP}/target": str(size)})
    if kind == "spot-fleet":
        aws.add_fleet(primary, size)
    else:
        aws.add_group(primary, desired=size)
    aws.add_group("fallback")
    draw = random.Random(size)
    ids = [f"i-{draw.getrandbits(68):017x}" for _ in range(size)]
    for instance_id in ids:
        aws.add_instance(
            primary, instance_id, spot=True, launched=NOW - 7200, heartbeat=NOW - 5, since=NOW - 7020
        )
    events = [InterruptionNotice(instance_id, NOW + 120) for instance_id in ids[:noticed]]
    return Case(aws, controller(aws), events)


def measure(kind: str, size: int, policy: str, share_noticed: float = 0.0) -> dict[str, Any]:
    """Return time and calls of one pass over a group that the checker already knows."""
    built = make_case(kind, size, policy, math.ceil(size * share_noticed))
    _ok(built.controller.run())  # learns the group; later passes are measured
    built.aws.calls.clear()
    started = time.perf_counter()
    _ok(built.controller.run(built.events))
    pass_ms = (time.perf_counter() - started) * 1000
    calls = dict(sorted(built.aws.calls.items()))
    memory = built.controller.memory_store.load(GROUP).memory
    leaves = {name.rsplit("/", 1)[1]: value for name, value in built.aws.parameters.items()}
    settings = parse(GROUP, leaves)
    observation = built.controller.observer.observe(settings, NOW, UNLIMITED)
    decide_ms = 1000 * _min_seconds(lambda: decide(observation, settings.policy, memory, NOW))
    pages = sum(calls[name] - 1 for name in calls.keys() & PAGE.keys())
    return {
        "pass_ms": round(pass_ms, 2),
        "decide_ms": round(decide_ms, 3),
        "calls": calls,
        "calls_total": sum(calls.values()),
        "calls_beyond_further_pages": sum(calls.values()) - pages,
        "memory_bytes": len(built.aws.memory[GROUP]["memory"]["S"]),
    }


def many(groups: int, size: int) -> dict[str, Any]:
    """Return what passes over many groups bring on a fake clock with AWS's latencies and published rates."""
    aws = many_groups.stack(groups, size)
    started = time.process_time()
    played = many_groups.play(aws, _MINUTES)
    cpu = (time.process_time() - started) / _MINUTES
    return {
        "longest_seconds": round(played.longest),
        "cpu_ms_of_a_group": round(1000 * cpu / groups, 2),
        "calls_a_minute": many_groups.limits(played.calls),
        "calls_of_a_group": round(sum(played.calls.values()) / groups, 2),
    }


def _min_seconds(work: Callable[[], object]) -> float:
    """Return the minimum CPU time in seconds of several runs, the least disturbed one."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _ok(outcomes: list[GroupOutcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def figures(sizes: Sequence[int], names: Sequence[str] = policies.NAMES) -> dict[str, Any]:
    """Return every measurement: by policy, kind and scene, then by size."""
    shares = {"calm": 0.0, "a tenth noticed": 0.1}
    return {
        policy: {
            f"{kind}, {name}": {str(size): measure(kind, size, policy, share) for size in sizes}
            for kind in KINDS
            for name, share in shares.items()
        }
        for policy in names
    }


def broken(results: dict[str, Any], stacks: dict[str, Any]) -> list[str]:
    """Return violations, one line each: time, calls that grow faster than pages, the item's size."""
    lines = []
    for name, at in stacks.items():
        if at["longest_seconds"] > MOST_UNDECIDED_SECONDS:
            lines.append(f"{name}: a group had no decision for {at['longest_seconds']} s")
        for call, (count, limit) in at["calls_a_minute"].items():
            if not isinstance(limit, str) and count > limit:
                lines.append(f"{name}: {count} calls of {call} a minute, {limit:.0f} are allowed")
    for policy, cases in results.items():
        for name, sizes in cases.items():
            beyond = {size["calls_beyond_further_pages"] for size in sizes.values()}
            if len(beyond) > 1:
                lines.append(f"{policy}, {name}: calls beyond further pages are {sorted(beyond)}, not equal")
            for size, at in sizes.items():
                if at["decide_ms"] > MOST_DECIDE_MS:
                    lines.append(f"{policy}, {name}, {size}: decide() takes {at['decide_ms']} ms")
                if at["memory_bytes"] > MOST_ITEM_BYTES:
                    lines.append(f"{policy}, {name}, {size}: memory has {at['memory_bytes']} bytes")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "checker")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--stacks", type=_stack, nargs="*", default=STACKS, metavar="GROUPSxSIZE")
    options = parser.parse_args(arguments)
    results = figures(options.sizes)
    stacks = {f"{groups} groups of {size}": many(groups, size) for groups, size in options.stacks}
    problems = broken(results, stacks)
    result = {
        "machine": MACHINE,
        "most_decide_ms": MOST_DECIDE_MS,
        "default_policy": policies.DEFAULT,
        "policies": results,
        "stacks": stacks,
        "broken": problems,
    }
    write(options.out, result)
    print(f"{'':44}{'instances':>10}{'pass ms':>10}{'decide ms':>11}{'calls':>7}{'memory B':>10}")
    for policy, cases in results.items():
        for name, sizes in cases.items():
            for size, at in sizes.items():
                print(
                    f"{f'{policy}, {name}':44}{size:>10}{at['pass_ms']:10.1f}{at['decide_ms']:11.2f}"
                    f"{at['calls_total']:7}{at['memory_bytes']:10}"
                )
    for name, at in stacks.items():
        print(
            f"{name}: {at['longest_seconds']} s, {at['calls_of_a_group']} calls a group, "
            f"{at['cpu_ms_of_a_group']} ms of CPU a group"
        )
        for call, (count, limit) in at["calls_a_minute"].items():
            print(f"    {call:40}{count:>7} a minute, limit {limit}")
    return verdict(problems)


def _stack(text: str) -> tuple[int, int]:
    groups, _, size = text.partition("x")
    return int(groups), int(size)


if __name__ == "__main__":
    sys.exit(main())
