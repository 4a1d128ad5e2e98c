"""``gpu-spot replay-deadline``: what training jobs under a deadline cost in single zones."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_spot.market.deadline.measure import Sum, measure, starts_in
from gpu_spot.market.deadline.policies import DEFAULT, NAMES, build
from gpu_spot.market.deadline.policies.model import DeadlinePolicy, Job
from gpu_spot.market.deadline.pool import PoolRuns
from gpu_spot.market.supply.trace import TraceError, load

Subparsers = argparse._SubParsersAction  # argparse has no public name for it


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to a parser's subcommands; ``run`` carries it out."""
    parser = subparsers.add_parser(
        "replay-deadline",
        help="replay training jobs under a deadline, each trace a zone of its own",
        description="Replay one-instance jobs under a deadline. Every trace file is a zone of its own.",
    )
    parser.add_argument(
        "--trace", nargs="+", required=True, metavar="DIR|FILE", help="traces, one zone a file"
    )
    parser.add_argument(
        "--compute", type=float, required=True, metavar="HOURS", help="compute that the job needs"
    )
    parser.add_argument(
        "--deadline", type=float, required=True, metavar="HOURS", help="from the start of the job"
    )
    parser.add_argument(
        "--delay", type=float, required=True, metavar="MIN", help="change-over paid at each start"
    )
    parser.add_argument("--policy", default="all", metavar="NAME[,NAME…]|all", help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--starts", type=int, default=200, help="start times a trace, evenly spread (default 200)"
    )
    parser.add_argument("--spot-price", type=float, default=0.3, help="of the on-demand price (default 0.3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Replay and print a table; return 0, or 2 after one line on standard error if the input is bad."""
    try:
        rows = _rows(args)
        if args.json is not None:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    except (TraceError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot replay-deadline: {error}\n")
        return 2
    sys.stdout.write(_table(rows))
    return 0


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.starts < 1:
        raise ValueError(f"--starts is {args.starts}, at least 1 is needed")
    for option in ("compute", "deadline", "delay"):
        value = getattr(args, option)
        if not math.isfinite(value):
            raise ValueError(f"--{option} is {value}, a finite number is needed")
    policies = _policies(args.policy)
    job = Job(
        _whole(args.compute * 60), _whole(args.deadline * 60), _whole(args.delay), spot_price=args.spot_price
    )
    rows: list[dict[str, Any]] = []
    for file in _files(args.trace):
        pool = PoolRuns.of_trace(load([file])[0])
        starts = starts_in(pool, job.deadline, args.starts)
        sums = measure(pool, [job], policies, starts)
        rows.extend(_row(str(file), name, job, sums[job, name]) for name in policies)
    return rows


def _policies(wanted: str) -> Mapping[str, DeadlinePolicy]:
    names = NAMES if wanted == "all" else tuple(name.strip() for name in wanted.split(","))
    return {name: build(name) for name in names}


def _files(paths: Sequence[str]) -> list[Path]:
    """Return the trace files; folders give their ``*.json``. What is missing is left for ``load`` to name."""
    files: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.glob("*.json")) if path.is_dir() else []
        files.extend(inside or [path])
    return files


def _whole(minutes: float) -> float:
    """Return whole minutes, rounded up, in seconds."""
    return 60.0 * math.ceil(minutes - 1e-9)


def _row(trace: str, name: str, job: Job, total: Sum) -> dict[str, Any]:
    on_demand = (job.compute + job.changeover) / 3600
    return {
        "trace": trace,
        "policy": name,
        "default": name == DEFAULT,
        "compute_hours": job.compute / 3600,
        "deadline_hours": job.deadline / 3600,
        "delay_minutes": job.changeover / 60,
        "jobs": total.jobs,
        "misses": total.misses,
        "cost": total.cost / total.jobs / on_demand,
        "bound": total.bound / total.jobs / on_demand,
        "cost_vs_bound": total.cost / total.bound if total.bound else 1.0,
        "spot_hours": total.spot_hours / total.jobs,
        "on_demand_hours": total.on_demand_hours / total.jobs,
        "starts_per_job": total.starts / total.jobs,
        "interruptions_per_job": total.interruptions / total.jobs,
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as text; costs are parts of what the same job costs on on-demand alone."""
    width = max(len(Path(row["trace"]).stem) for row in rows) + 2
    lines = [
        f"{'trace':{width}}{'policy':26}{'cost':>7}{'÷ clairvoyant':>15}{'spot h':>8}{'on-demand h':>13}"
    ]
    lines[0] += f"{'starts':>8}{'missed':>8}"
    for row in rows:
        lines.append(
            f"{Path(row['trace']).stem:{width}}{row['policy']:26}{row['cost']:7.3f}{row['cost_vs_bound']:15.3f}"
            f"{row['spot_hours']:8.1f}{row['on_demand_hours']:13.1f}{row['starts_per_job']:8.1f}{row['misses']:8}"
        )
    return "\n".join(lines) + "\n"
