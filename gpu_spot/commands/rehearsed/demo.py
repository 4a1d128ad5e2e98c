"""``gpu-spot demo``: deploy a stack into a rehearsal and replay a Spot market against it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpu_spot.commands.rehearsed.defaults import (
    HOURS,
    HTTP_HOURS,
    LOAD_HOURS,
    NOTICE_SHARE,
    SERVICE_HOURS,
    SERVICE_NOTICE_SHARE,
    SHARED_HOURS,
)
from gpu_spot.commands.rehearsed.installed import rehearsal_installed


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("demo", help="deploy a stack locally and replay a Spot market against it")
    parser.add_argument(
        "--stack", help="stack file Pulumi.<STACK>.yaml (default: dev; with --job the one that names the job)"
    )
    parser.add_argument("--group", help="capacity group to rehearse (default: the stack's first)")
    parser.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="DIR|FILE",
        help="Spot traces to replay, one capacity pool per file (default: drawn from the fitted model)",
    )
    parser.add_argument(
        "--hours",
        type=_positive,
        help=f"simulated hours (default: {HOURS:g}; for a shared host {SHARED_HOURS:g}; with --service "
        f"{SERVICE_HOURS:g}, one minute each; with --http {HTTP_HOURS:g}, in real time)",
    )
    parser.add_argument("--target", type=_count, help="target capacity (default: the stack's)")
    parser.add_argument(
        "--pool-size",
        type=_count,
        help="instances per unit of a trace sample (default: 8 for 0/1 traces)",
    )
    parser.add_argument(
        "--notice-share",
        type=_fraction,
        help="share of interruptions announced 120 s ahead "
        f"(default: {NOTICE_SHARE:g}; with --service {SERVICE_NOTICE_SHARE:g})",
    )
    parser.add_argument(
        "--job",
        type=Path,
        metavar="DIR",
        help="run the script of a training job, such as examples/training, to completion while the market "
        "interrupts its instances",
    )
    parser.add_argument(
        "--service",
        metavar="NAME",
        help="run the workers of a service, such as ocr, and of those it is chained with, with a local "
        "RabbitMQ server while the market interrupts their instances",
    )
    parser.add_argument(
        "--http",
        action="store_true",
        help="run the workers of examples/http-service, HAProxy and callers, while a market takes hosts",
    )
    parser.add_argument(
        "--load",
        action="store_true",
        help=f"simulate a day of load on a service with scaling, such as --stack ocr; the deployed scaler "
        f"sets its target each minute (default: {LOAD_HOURS:g} hours)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="virtual environment for --job (default: built as the stack file declares)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random number generator (default: 1)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="directory of the report (default: out/demo)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the summary as JSON; other output goes to stderr"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the rehearsal running for use with the AWS CLI"
    )
    parser.set_defaults(run=run, workers=None)


def run(args: argparse.Namespace) -> int:
    """Deploy, replay and report. Returns 1 if real workers lost a request or ran one twice unmarked."""
    if args.http:
        with rehearsal_installed():
            from rehearsal.commands import demo_http
        return demo_http.run(args)
    with rehearsal_installed():
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
