"""``gpu-spot demo``: deploy a stack into the local cloud and keep its workers alive through a spot market."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpu_spot.commands.rehearsed.defaults import (
    HOURS,
    LOAD_HOURS,
    NOTICE,
    SERVICE_HOURS,
    SERVICE_NOTICE,
    SHARED_HOURS,
)
from gpu_spot.commands.rehearsed.installed import installed


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("demo", help="deploy a stack locally and replay a spot market against it")
    parser.add_argument(
        "--stack", help="the stack file Pulumi.<STACK>.yaml (default: dev; with --job the one that names it)"
    )
    parser.add_argument("--group", help="the group to rehearse (default: the stack's first)")
    parser.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="DIR|FILE",
        help="spot traces to replay, one capacity pool a file (default: drawn from the fitted model)",
    )
    parser.add_argument(
        "--hours",
        type=_positive,
        help=f"simulated hours (default: {HOURS:g}; of a shared host {SHARED_HOURS:g}; with --service "
        f"{SERVICE_HOURS:g}, a minute each)",
    )
    parser.add_argument("--target", type=_count, help="instances to keep ready (default: the stack's)")
    parser.add_argument(
        "--pool-size",
        type=_count,
        help="instances that a trace sample stands for (default: 8 for 0/1 traces)",
    )
    parser.add_argument(
        "--notice",
        type=_fraction,
        help="share of losses announced 120 s ahead "
        f"(default: {NOTICE:g}; with --service {SERVICE_NOTICE:g})",
    )
    parser.add_argument(
        "--job",
        type=Path,
        metavar="FOLDER",
        help="run the script of a training job, such as examples/training, for real until it is done, while "
        "the market takes its instances",
    )
    parser.add_argument(
        "--service",
        metavar="NAME",
        help="run the workers of a service, such as ocr, for real on a RabbitMQ server of this machine, "
        "while the market takes their instances",
    )
    parser.add_argument(
        "--load",
        action="store_true",
        help=f"put a day's load on a service with scaling, such as --stack ocr: the deployed scaler sets its "
        f"target each minute (default: {LOAD_HOURS:g} hours)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="the virtual environment that --job runs with (default: built as its stack file says)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of everything that chance decides (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder of the report")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, all else on stderr")
    parser.add_argument("--keep", action="store_true", help="leave the local cloud open for the AWS CLI")
    parser.set_defaults(run=run, workers=None)


def run(args: argparse.Namespace) -> int:
    """Deploy, replay, report; 1 if real workers lost a request or ran one twice unmarked."""
    with installed():
        from rehearsal.commands import demo
    return demo.run(args)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _positive(text: str) -> float:
    value = _float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours above 0")
    return value


def _fraction(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
