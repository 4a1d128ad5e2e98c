"""The part of ``make bench-slices`` with real containers: isolation of tenants, and lent CPU time."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from tests.real import containers as real
from tests.real import floods, hostile, hostile_calls, shells, tunnels
from tests.real.breaches import ALONE, breaches, plant, unenforced
from tests.real.lending import lending
from tests.real.tenants import ADDRESS, SharedHost, shared_host, tenant, until
from tests.real.tenants import PROGRAMS as OF_A_HOST

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
    host.tenants = (*host.tenants, tenant("dee", 2004))
    until(lambda: host.answers(ADDRESS, 8004), "dee serves")
    return round(time.monotonic() - started_at, 2)
