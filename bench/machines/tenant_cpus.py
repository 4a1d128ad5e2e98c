"""CPU limits of tenants in real containers, and the time from a changed list to a running container.

    make bench-tenant-cpus

The same CPU-bound job runs on all CPUs, then with ``cpuMode: capped`` on half of them. Then a tenant is
capped beside a busy neighbour, and its CPU time by its control group is compared with the cap. Other
processes of this machine have a low weight meanwhile. Needs root, Docker and two CPUs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench.parts.page import replace_part
from bench.parts.run import MACHINE, parser_of, verdict, write
from tests.real import containers as real
from tests.real.changes import LIMIT_SECONDS, list_changes
from tests.real.lending import Lending, lending
from tests.real.tenants import THREE, SharedHost, shared_host, until
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.model import CpuMode

CAPS: Final = (0.5, 1.0, 1.5)
TOLERANCE: Final = 0.03
_REPEATS: Final = 5
_WINDOW_SECONDS: Final = 10.0
_JOB_SECONDS: Final = 6.0
_CHANGES: Final = 12
_PERIOD: Final = 100_000
_MODES: Final[tuple[tuple[CpuMode, int], ...]] = (("capped", _PERIOD), ("shared", -1))


def measure() -> dict[str, Any]:
    """Return the measurements; raises `LackingError` where this machine cannot run containers."""
    with real.folder() as directory, shared_host(directory) as host:
        experiment = _experiment(host)
        changes = list_changes(host, _CHANGES)
        host.stop()  # it would set the caps that the list declares
        caps = _caps(host)
        host.begin()
    return {
        **MACHINE,
        **experiment,
        "caps": caps,
        "list_changes": len(changes),
        "list_change_seconds": {
            "median": round(statistics.median(changes), 1),
            "most": round(max(changes), 1),
        },
    }


def _experiment(host: SharedHost) -> dict[str, Any]:
    """Run the job in turn on all CPUs and on one; return the ratios of the times and of the CPU seconds."""
    seconds: dict[str, list[float]] = {"shared": [], "capped": []}
    used: dict[str, list[float]] = {"shared": [], "capped": []}
    with lending(host) as tenants:
        rounds = 100_000
        rounds = int(rounds * _JOB_SECONDS / tenants.job_seconds("ada", rounds))
        for _ in range(_REPEATS):
            for mode, quota in _MODES:
                changed = replace(THREE[0], cpu_mode=mode)
                host.tenants = (changed, *THREE[1:])
                _await_quota(host, quota)
                before = tenants.spent("ada")
                seconds[mode].append(tenants.job_seconds("ada", rounds))
                used[mode].append(tenants.spent("ada") - before)
    ratios = [capped / shared for capped, shared in zip(seconds["capped"], seconds["shared"], strict=True)]
    return {
        "job_time_ratio": round(statistics.median(ratios), 3),
        "each_job_time_ratio": [round(ratio, 3) for ratio in ratios],
        "job_cpu_ratio": round(statistics.median(used["capped"]) / statistics.median(used["shared"]), 3),
        "job_cpus_used": {
            mode: round(statistics.median(map(_quotient, used[mode], seconds[mode])), 3) for mode in used
        },
    }


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor


def _await_quota(host: SharedHost, quota: int) -> None:
    until(lambda: host.inspected()["ada"]["HostConfig"]["CpuQuota"] == quota, f"the quota is {quota}")


def _caps(host: SharedHost) -> dict[str, dict[str, float]]:
    """Return the CPU time of a busy tenant by its cap, as a share of it; a neighbour is busy, too.

    By its weight the tenant could use seven eighths of the CPUs.
    """
    results = {}
    for cap in CAPS:
        limits = ["--cpu-shares", "280", "--cpu-quota", str(int(cap * _PERIOD))]
        host.docker("update", *limits, name_of("ada"))
        host.docker("update", "--cpu-shares", "40", name_of("bo"))
        with lending(host) as tenants:
            tenants.wake("ada")
            tenants.wake("bo")
            shares = [_share(tenants, cap) for _ in range(_REPEATS)]
        results[str(cap)] = {
            "median": round(statistics.median(shares), 4),
            "least": round(min(shares), 4),
            "most": round(max(shares), 4),
        }
    return results


def _share(tenants: Lending, cap: float) -> float:
    with tenants.undisturbed():
        started_at, before = time.monotonic(), tenants.spent("ada")
        time.sleep(_WINDOW_SECONDS)
        return (tenants.spent("ada") - before) / (cap * (time.monotonic() - started_at))


def problems_of(result: dict[str, Any]) -> list[str]:
    """Return what of a result does not hold."""
    problems = [
        f"a cap of {cap} CPUs: {share['least']} to {share['most']} of it used"
        for cap, share in result["caps"].items()
        if share["most"] > 1 + TOLERANCE or share["median"] < 1 - TOLERANCE
    ]
    if not 1.8 <= result["job_time_ratio"] <= 2.2:
        problems.append(f"on half of the CPUs the job takes {result['job_time_ratio']} times as long")
    if result["list_change_seconds"]["most"] > LIMIT_SECONDS:
        problems.append(f"a changed list runs after {result['list_change_seconds']['most']} s")
    return problems


def page_part(result: dict[str, Any]) -> str:
    """Return the section of ``performance.md``."""
    shares = [100 * cap[key] for cap in result["caps"].values() for key in ("least", "most")]
    changes = result["list_change_seconds"]
    return (
        "## CPUs of a tenant\n\n"
        "`make bench-tenant-cpus`, in real containers on two CPUs: the same CPU-bound job takes "
        f"**{result['job_time_ratio']:.2f} times** as long capped at one CPU as on both, with "
        f"{result['job_cpu_ratio']:.2f} times the CPU time (medians of {_REPEATS}). Capped at 0.5, 1 and 1.5 "
        f"CPUs beside a busy neighbour, a tenant uses {min(shares):.1f} to **{max(shares):.1f} %** of its "
        f"cap in windows of {_WINDOW_SECONDS:.0f} s. Other processes ran on the machine, with a low weight."
        "\n\n"
        "From the changed list in S3 to the running container, with cached images and local disks: "
        f"{changes['median']} s (median of {result['list_changes']} changes), at most "
        f"**{changes['most']} s**. On EC2 a new tenant's volume adds about 20 s (assumed: 10 s for its "
        "creation and 6 s for its attachment, each polled every 5 s)."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the page; return 1 if something does not hold, 2 without containers."""
    options = parser_of(__doc__, "tenant-cpus", docs=True).parse_args(arguments)
    try:
        result = measure()
    except real.LackingError as error:
        print(f"containers are needed: {error}", file=sys.stderr)
        return 2
    write(options.out, result)
    print(json.dumps(result, indent=2))
    docs: Path = options.docs
    replace_part(docs / "performance.md", "tenant-cpus", page_part(result))
    return verdict(problems_of(result))


if __name__ == "__main__":
    sys.exit(main())
