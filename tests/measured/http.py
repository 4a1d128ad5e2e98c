"""An HTTP service behind HAProxy: failed requests in a market, the path's cost, the scaler's bill.

    python -m tests.measured.http [--only path market rollouts clients scaling] [--requests N] [--days 14]
        [--seed 1] [--out FILE] [--docs .]

- ``path``: the same requests to the workers themselves and through the proxies, at the same time.
- ``market``: two plays of ``tests/real/http_play``, all interruptions with a notice, then all without.
- ``rollouts``: a good release and bad ones, under requests.
- ``clients``: callers of other libraries while their workers get a notice.
- ``scaling``: ``cost_ratio`` to AWS's target tracking, replayed (``research/parts/http_scaling.py``).
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from research.parts import http_scaling
from research.parts.needs import frameworks, say
from research.parts.page import replace_part
from research.parts.run import MACHINE, parser_of, verdict, write
from tests.measured.parts import needs
from tests.real import http_plays
from tests.real.http_play import load_client, play, rollout
from tests.real.http_play.load_client import LoadConfig
from tests.real.http_play.play import HttpScript, quantile, summarise

REQUESTS: Final = 50_000
_NOTICED: Final = HttpScript(hosts=5, rate=150.0, interval=4.0, notice_share=1.0, notice_seconds=10.0)
_KILLED: Final = dataclasses.replace(_NOTICED, notice_share=0.0, interval=3.0)
_KILLED_SHARE: Final = 0.2
"""Share of the requests without notices."""
_OVERHEAD_SECONDS: Final = 40.0
_OVERHEAD_RATE: Final = 20.0
_OVERHEAD: Final = HttpScript(hosts=2, token_seconds=0.01, tokens=5, concurrency=8)
"""Each worker answers at most 8 requests of 50 ms at once: 40 a second are far below what HAProxy limits."""


def overhead() -> dict[str, float]:
    """Return what the path adds to the time to the last byte, in milliseconds."""
    with play.world(_OVERHEAD) as (running, folder):
        direct = [(host.address, play.WORKER_PORT) for host in running.hosts.listed()]
        proxied = [proxy.address for proxy in running.proxies]
        times = {}
        configs = {
            name: LoadConfig(addresses, _OVERHEAD_RATE, _OVERHEAD.tokens, seed=1)
            for name, addresses in {"direct": direct, "proxied": proxied}.items()
        }
        with (
            play.load(configs["direct"], folder / "direct"),
            play.load(configs["proxied"], folder / "proxied"),
        ):
            time.sleep(_OVERHEAD_SECONDS)
        for name in configs:
            records = list(load_client.read(folder / name))
            times[name] = [record.last for record in records if record.kind == "models"]
    return {
        f"p{percent}_ms_added": round(
            1000 * (quantile(times["proxied"], percent / 100) - quantile(times["direct"], percent / 100)), 2
        )
        for percent in (50, 99)
    } | {"p50_ms_direct": round(1000 * quantile(times["direct"], 0.5), 2)}


def failures(requests: int, seed: int) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for script, share in ((_NOTICED, 1 - _KILLED_SHARE), (_KILLED, _KILLED_SHARE)):
        seconds = requests * share / script.rate * 1.02  # random arrivals: a few more
        outcome = play.run(dataclasses.replace(script, seconds=seconds, seed=seed))
        for record in outcome.failed(repeatable=True):
            say(f"failed, though it may be repeated: {record}")
        for name, value in summarise(outcome).items():
            counts[name] = counts.get(name, 0) + value if not name.startswith("p") else value
    return counts


def rollouts() -> dict[str, Any]:
    """Return what callers noticed of a good release, and of bad ones until they had come back."""
    outcomes = rollout.run(rollout.releases(rollout.SCRIPT))
    failing = outcomes.pop("failing")
    return {
        "rollout_requests": sum(len(outcome.records) for outcome in outcomes.values()),
        "rollout_failed": sum(len(outcome.failed) for outcome in outcomes.values()),
        "rollout_minutes": outcomes.pop("good").minutes,
        "failing_release_failed": len(failing.failed),
        "rejected": {
            name: outcome.rejection_reason for name, outcome in {"failing": failing, **outcomes}.items()
        },
    }


def clients() -> dict[str, int]:
    """Return the requests of each library's callers, and how many failed."""
    counts = {}
    for kind in http_plays.CLIENTS:
        results = http_plays.clients(kind)
        counts[f"{kind}_requests"] = sum(sum(result["counts"].values()) for result in results)
        counts[f"{kind}_failed"] = sum(len(result["failed"]) for result in results)
    return counts


def section(result: dict[str, Any]) -> str:
    return (
        "## HTTP services\n\n"
        f"`make bench-http` sends {result['requests']:,} requests ({result['streamed']:,} streamed) through "
        f"two HAProxy processes to {_NOTICED.hosts} workers under the agent's supervisor, while "
        f"{result['with_notice']} hosts get a notice ({_NOTICED.notice_seconds:g} s, a twelfth of AWS's) and "
        f"{result['without_notice']} are killed without one. Failed: **{result['failed_with_notice']} with "
        f"notice, {result['failed_repeatable']} repeatable ones**, and {result['failed_other']} that must "
        f"not be repeated and were at a worker that was killed; {result['repeated']} went to another worker. "
        f"{result['overdue']} workers outran their deadline.\n\n"
        f"A good release is on all workers after {result['rollout_minutes']:.0f} minutes of the health "
        "checker. Bad ones come back by themselves: "
        f"{'; '.join(f'*{name}*, as {reason}' for name, reason in result['rejected'].items())}. Failed: "
        f"**{result['rollout_failed']}** of {result['rollout_requests']:,} requests, and "
        f"{result['failing_release_failed']} at the host that tried the failing one. A minute "
        "of the health checker is two seconds here; agents and HAProxy run in real time.\n\n"
        "Callers by the `openai` package, `tritonclient` and WebSocket while their workers get a notice: "
        f"{sum(result[f'{kind}_failed'] for kind in http_plays.CLIENTS)} failed of "
        f"{sum(result[f'{kind}_requests'] for kind in http_plays.CLIENTS)} requests.\n\n"
        f"The path adds {result['p50_ms_added']} ms at the median and {result['p99_ms_added']} ms at the "
        "99th percentile to a request of "
        f"{result['p50_ms_direct']} ms, in one run on {MACHINE['cpus']} cores that callers, workers and "
        "proxies share. Not measured: the load balancer, a network.\n"
    )


def write_page(result: dict[str, Any], root: Path) -> None:
    about_requests = {"p50_ms_added", "requests", "rollout_failed", "openai_failed"}
    if about_requests <= result.keys() and result["requests"] >= REQUESTS:
        replace_part(root, "http", section(result))
    if result.get("days", 0) >= http_scaling.DAYS:
        replace_part(root, "http-scaling", http_scaling.section(result))


def problems(result: dict[str, Any]) -> list[str]:
    names = (
        *("failed_with_notice", "failed_repeatable", "overdue", "rollout_failed"),
        *(f"{kind}_failed" for kind in http_plays.CLIENTS),
    )
    return [f"{name} must be 0, not {result[name]}" for name in names if result.get(name)] + [
        f"the release {name} has not come back"
        for name, reason in result.get("rejected", {}).items()
        if not reason
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the file; return 1 if a request failed that must not."""
    parser = parser_of(__doc__, "http", docs=True)
    parts = ("path", "market", "rollouts", "clients", "scaling")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts, help=f"of {', '.join(parts)}")
    parser.add_argument("--requests", type=int, default=REQUESTS, metavar="N", help="in the market")
    days = http_scaling.DAYS
    parser.add_argument(
        "--days", type=int, default=days, help=f"of scaling, half of them to tune on ({days})"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args(arguments)
    if {*options.only} - {"scaling"}:
        needs.haproxy()
        frameworks(["http"])
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "path": overhead,
        "market": lambda: failures(options.requests, options.seed),
        "rollouts": rollouts,
        "clients": clients,
        "scaling": lambda: http_scaling.measure(options.days),
    }
    result: dict[str, Any] = {"machine": MACHINE, "seed": options.seed}
    for part in parts:
        if part in options.only:
            result |= measured[part]()
    write_page(result, options.docs)
    write(options.out, result)
    shown = {name: value for name, value in result.items() if name not in http_scaling.ROWS}
    print(json.dumps(shown, indent=2))
    return verdict(problems(result))


if __name__ == "__main__":
    sys.exit(main())
