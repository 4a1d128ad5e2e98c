"""Cost of training jobs with a deadline in single zones: ``python -m research.replay_deadline``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_spot.commands import files, traces
from lambdas.core.deadline.model import Job
from research.simulation.deadline.policies import NAMES, named
from research.simulation.deadline.zones import ZoneOutcome, compare


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m research.replay_deadline",
        description="Replay one-instance jobs with a deadline. Each trace file is one zone.",
    )
    parser.add_argument(
        "--trace", nargs="+", type=Path, required=True, metavar="DIR|FILE", help="traces, one zone per file"
    )
    parser.add_argument(
        "--compute", type=float, required=True, metavar="HOURS", help="compute time of the job"
    )
    parser.add_argument(
        "--deadline", type=float, required=True, metavar="HOURS", help="deadline, from the start of the job"
    )
    parser.add_argument(
        "--restart-minutes", type=float, required=True, metavar="MIN", help="overhead of each start"
    )
    parser.add_argument(
        "--policy", default="all", metavar="NAME[,NAME…]|all", help=f"policies to compare: {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--starts", type=int, default=200, help="start times per trace, evenly spread (default: 200)"
    )
    parser.add_argument(
        "--spot-price", type=float, default=0.3, help="share of the On-Demand price (default: 0.3)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser


def run(args: argparse.Namespace) -> int:
    """Replay and print a table. Returns 2 after one line on standard error if the input is invalid."""
    try:
        files.check_writable("--json", args.json)
        with traces.name_option():
            outcomes = _outcomes(args)
        if args.json is not None:
            files.write("--json", args.json, json.dumps([asdict(o) for o in outcomes], indent=2) + "\n")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"research.replay_deadline: {error}\n")
        return 2
    sys.stdout.write(_table(outcomes))
    return 0


def _outcomes(args: argparse.Namespace) -> list[ZoneOutcome]:
    if args.starts < 1:
        raise ValueError(f"--starts must be at least 1, not {args.starts}")
    for option in ("compute", "deadline", "restart-minutes"):
        value = getattr(args, option.replace("-", "_"))
        if not math.isfinite(value):
            raise ValueError(f"--{option} must be a finite number, not {value}")
    job = Job(
        _whole(args.compute * 60),
        _whole(args.deadline * 60),
        _whole(args.restart_minutes),
        spot_price=args.spot_price,
    )
    return list(compare(args.trace, job, named(args.policy), args.starts))


def _whole(minutes: float) -> float:
    """Round minutes up to whole minutes; return seconds."""
    return 60.0 * math.ceil(minutes - 1e-9)


def _table(outcomes: Sequence[ZoneOutcome]) -> str:
    """Return the outcomes as text; costs are relative to the same job on On-Demand alone."""
    width = max(len(Path(o.trace).stem) for o in outcomes) + 2
    lines = [
        f"{'trace':{width}}{'policy':26}{'cost':>7}{'÷ clairvoyant':>15}{'spot h':>8}{'on-demand h':>13}"
        f"{'starts':>8}{'missed':>8}"
    ]
    for o in outcomes:
        lines.append(
            f"{Path(o.trace).stem:{width}}{o.policy:26}{o.cost:7.3f}{o.cost_vs_bound:15.3f}"
            f"{o.spot_hours:8.1f}{o.on_demand_hours:13.1f}{o.starts_per_job:8.1f}{o.misses:8}"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it with these arguments, by default the process's."""
    return run(parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
