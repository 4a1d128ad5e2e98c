"""Plan random lists of tenants on shared hosts of all types that a stack file may name.

    python -m tests.measured.slices [--plans N] [--list-pairs N] [--without-containers] [--out FILE]
        [--docs .]

Each list changes while tenants run. ``tests/tenants/laws.py`` checks the invariants of an accepted plan, from
the plan and the list alone; the error of a rejected list must name a tenant that does not fit. Lists are
also reached from states between other lists, with failing and dead containers (``tests/tenants/moves.py``).
With Docker and root, three tenants also run in real containers, and attack each other; this writes the page.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra.catalogue import host_shapes
from research.parts.page import replace_part, table
from research.parts.run import parser_of, verdict, write
from tests.measured.parts import needs
from tests.real import containers as real
from tests.real import floods, hostile, hostile_calls, shells, tunnels
from tests.real.breaches import ALONE, breaches, plant, unenforced
from tests.real.lending import lending
from tests.real.tenants import ADDRESS, SharedHost, shared_host, until
from tests.real.tenants import PROGRAMS as OF_A_HOST
from tests.real.tenants import tenant as contained
from tests.tenants import laws, moves
from tests.tenants.hosts import tenant
from userdata.agent.tenants.model import HostShape, PlanRefusedError, Slice, Tenant
from userdata.agent.tenants.plan import plan

PROGRAMS: Final = (*real.DOCKER, *OF_A_HOST)
FLOOD: Final = "a flood"
"""The kind of an attack that is to slow a neighbour down."""
_WAKES: Final = 5
_BUSY_SECONDS: Final = 5.0
_FLOOD_SECONDS: Final = 8.0


def measure() -> dict[str, Any]:
    """Return the measurements, or the reason why there are none.

    ``lent_fraction`` is the share of otherwise unused CPU time that one busy tenant with one declared CPU got
    while two were idle; ``give_back_seconds`` the longest time, over several wakes, until an owner had nine
    tenths of its half for a quarter second, and ``give_back_seconds_by_flood`` that under `floods.FLOODS`.
    ``neighbour_share`` is the least that was left to a neighbour under one of them.
    """
    tried = {
        "a tenant's program": [*ALONE, *hostile.PROGRAMS],
        "an image": [image.name for image in hostile.IMAGES],
        "a behaviour": [*hostile.BEHAVIOURS],
        "a system call": [*hostile_calls.TRIED],
        "a packet": [*tunnels.NAMES],
        "keys in a shell": [*shells.KEYS],
        FLOOD: [*floods.FLOODS],
    }
    try:
        with real.folder() as directory, shared_host(directory) as host:
            plant(host)
            breaches_found = [*breaches(host), *hostile.succeeded(host), *shells.reached(host, "ada")]
            return {
                "attacks": sum(map(len, tried.values())),
                "attacks_by_name": tried,
                "isolation_breaches": len(breaches_found),
                "breaches": breaches_found,
                "rules_unenforced_here": len(unenforced()),
                **_lending(host),
                **_floods(host),
                "new_tenant_seconds": _new_tenant(host),
            }
    except real.LackingError as error:
        return {"containers": f"not measured: {error}"}


def _lending(host: SharedHost) -> dict[str, Any]:
    took = []
    with lending(host) as tenants:
        tenants.wake("bo")
        lent = tenants.lent("bo", _BUSY_SECONDS)
        for _ in range(_WAKES):
            took.append(round(tenants.give_back_seconds("ada", "bo"), 2))
            tenants.rest("ada")
            time.sleep(1.0)
    return {
        "lent_fraction": round(lent.fraction, 4),
        "borrower_cpus": round(lent.cpus, 2),
        "cpus": os.cpu_count(),
        "give_back_seconds": max(took),
        "each_give_back": took,
    }


def _floods(host: SharedHost) -> dict[str, Any]:
    shares = floods.neighbour_shares(host, floods.FLOODS, _FLOOD_SECONDS)
    give_backs = floods.give_back_seconds(host, floods.FLOODS)
    return {
        "neighbour_share": round(min(shares.values()), 3),
        "neighbour_share_by_flood": {name: round(share, 3) for name, share in shares.items()},
        "give_back_seconds_by_flood": {name: round(seconds, 2) for name, seconds in give_backs.items()},
    }


def _new_tenant(host: SharedHost) -> float:
    started_at = time.monotonic()
    host.tenants = (*host.tenants, contained("dee", 2004))
    until(lambda: host.answers(ADDRESS, 8004), "dee serves")
    return round(time.monotonic() - started_at, 2)


PLANS: Final = 20_000
LIST_PAIRS: Final = 100_000
MIN_NEIGHBOUR_SHARE: Final = 0.9
"""Of what a neighbour gets beside a tenant that computes: what it gets beside one that floods."""
MAX_GIVE_BACK_SECONDS: Final = 1.0
"""Until a waking tenant has nine tenths of its part again, whatever its neighbour does."""
_CHANGES: Final = 12
"""How often a host's list changes."""


def drawn(rng: random.Random, host: HostShape, name: str) -> Tenant:
    """Return a tenant with a random share of a host, sometimes more than any host has."""
    gpus: dict[str, Any] = {}
    match rng.choice(["none", "count", "count", "ids", "part"]):
        case "count":
            gpus = {"gpus": rng.randint(0, max(1, len(host.gpus) // 2))}
        case "ids":
            gpus = {"gpu_ids": tuple(rng.sample(range(len(host.gpus) + 1), rng.randint(1, 2)))}
        case "part":
            names = [profile.name for profile in host.mig] or ["1g.5gb"]
            gpus = {"mig": rng.choice(names)}
    port = rng.choice([None, rng.randint(8000, 8300)])
    return tenant(
        name,
        uid=rng.randint(2000, 2300),
        cpus=2 * rng.randint(1, max(1, host.cpus // 8)),
        cpu_mode=rng.choice(["shared", "capped", "pinned"]),
        memory_gib=rng.randint(1, max(2, host.memory_gib // 4)),
        host_port=port,
        container_port=port,
        **gpus,
    )


def changed(rng: random.Random, host: HostShape, tenants: Sequence[Tenant]) -> list[Tenant]:
    """Return the list with one tenant added, removed or changed."""
    current = list(tenants)
    names = [tenant.name for tenant in current]
    free = [name for name in map(chr, range(ord("a"), ord("a") + 16)) if name not in names]
    if current and (not free or rng.random() < 0.35):
        removed = current.pop(rng.randrange(len(current)))
        if rng.random() < 0.5:
            current.append(drawn(rng, host, removed.name))
    else:
        current.insert(rng.randint(0, len(current)), drawn(rng, host, rng.choice(free)))
    return current


def named_truly(host: HostShape, tenants: Sequence[Tenant], refused: PlanRefusedError) -> bool:
    """Return whether an error names the first tenant that does not fit."""
    named = re.match(r"tenant '(.+?)': ", str(refused))
    for number, listed_tenant in enumerate(tenants):
        try:
            plan(host, tenants[: number + 1])
        except PlanRefusedError:
            return named is not None and named[1] == listed_tenant.name
    return False


def plans(max_plans: int, seed: int = 1) -> dict[str, Any]:
    """Plan ``most`` lists; return their number and the violations."""
    rng, counts, causes = random.Random(seed), Counter[str](), Counter[str]()
    shapes = {name: host_shapes.shape(name) for name in host_shapes.TYPES}
    while counts["plans"] < max_plans:
        host = shapes[rng.choice(host_shapes.TYPES)]
        tenants: list[Tenant] = []
        allocated: Mapping[str, Slice] = {}
        for _ in range(_CHANGES):
            desired = changed(rng, host, tenants)
            counts["plans"] += 1
            try:
                result = plan(host, desired, allocated)
            except PlanRefusedError as refused:
                counts["refused"] += 1
                causes[re.sub(r"[0-9]+|'.+?'", "…", str(refused).split("; ")[0])] += 1
                counts["misnamed"] += not named_truly(host, desired, refused)
                continue
            counts["oversold"] += len(laws.oversold(host, desired, result))
            counts["overlaps"] += len(laws.overlaps(host, result))
            same = {tenant.name for tenant in desired if tenant in tenants}
            if not any(tenant.gpu_ids or tenant.mig for tenant in desired):
                counts["moved"] += len(laws.moved(allocated, result.slices, same))
            tenants, allocated = desired, result.slices
    totals = {
        name: counts[name] for name in ("plans", "refused", "misnamed", "oversold", "overlaps", "moved")
    }
    return {**totals, "refused_for": dict(causes.most_common())}


def list_pairs(number: int, seed: int = 1) -> dict[str, int]:
    """Reach lists from random states; return the counts of `moves.pairs`."""
    hosts = [host_shapes.shape(name) for name in host_shapes.TYPES]
    return dict(moves.pairs(number, hosts, changed, random.Random(seed)))


def problems_of(result: Mapping[str, Any]) -> list[str]:
    counts = ("misnamed", "oversold", "overlaps", "moved", "stuck", "clashes", "silent", "isolation_breaches")
    problems = [f"{result[name]} {name}" for name in counts if result.get(name)]
    shares = result.get("neighbour_share_by_flood", {})
    problems += [
        f"a neighbour has {share} of its part beside a tenant that {flood}"
        for flood, share in shares.items()
        if share < MIN_NEIGHBOUR_SHARE
    ]
    return problems + [
        f"a tenant's CPUs are back after {seconds} s from one that {flood}"
        for flood, seconds in result.get("give_back_seconds_by_flood", {}).items()
        if seconds > MAX_GIVE_BACK_SECONDS
    ]


def page_part(result: Mapping[str, Any]) -> str:
    named = "\n".join(
        f"- {kind}: {', '.join(names)}" for kind, names in result["attacks_by_name"].items() if kind != FLOOD
    )
    give_backs = result["give_back_seconds_by_flood"]
    rows = [
        (flood, f"{share:.2f}", f"{give_backs[flood]:.2f}")
        for flood, share in result["neighbour_share_by_flood"].items()
    ]
    return (
        "## Tenants that attack\n\n"
        f"`make bench-slices`, in real containers on {result['cpus']} CPUs: **{result['attacks']} attacks, "
        f"{result['isolation_breaches']} breaches**; {result['plans']:,} plans and {result['list_pairs']:,} "
        f"changes of a list, **{result['stuck']} of them stuck**. Of the idle CPU time one tenant was lent "
        f"{100 * result['lent_fraction']:.0f} %; its owner had it again after at most "
        f"{result['give_back_seconds']:.2f} s. For the attacks by IPv6 the containers had it; Docker "
        f"turns it off.\n\n{named}\n\n"
        "What a neighbour that wants all CPUs got of its part, half of what both got, while a tenant did the "
        "following, and the seconds until a waking neighbour had nine tenths of it:\n\n"
        f"{table(('a tenant', 'share', 'seconds'), rows)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "slices", docs=True)
    parser.add_argument("--plans", type=int, default=PLANS)
    parser.add_argument("--list-pairs", type=int, default=LIST_PAIRS)
    parser.add_argument("--without-containers", action="store_true", help="only plan")
    options = parser.parse_args(arguments)
    if not options.without_containers:
        needs.containers_or_none(*PROGRAMS)
    result: dict[str, Any] = plans(options.plans) | list_pairs(options.list_pairs)
    result |= {} if options.without_containers else measure()
    write(options.out, result)
    print(json.dumps(result, indent=2))
    if "attacks" in result:
        docs: Path = options.docs
        replace_part(docs, "slices", page_part(result))
    return verdict(problems_of(result))


if __name__ == "__main__":
    sys.exit(main())
