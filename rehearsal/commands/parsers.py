"""Options of the commands ``demo`` and ``deploy``; what they do is imported when they run."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_spot.errors import UserError

HOURS: Final = 48.0
SHARED_HOURS: Final = 10.0
"""Hours for a shared host, whose moves are simulated in steps of a second."""
NOTICE_SHARE: Final = 0.9


def add_demo(commands: Any) -> None:
    """Add ``demo``: deploy a stack into a rehearsal and replay a Spot market against it."""
    parser = commands.add_parser("demo", help="deploy a stack locally and replay a Spot market against it")
    parser.add_argument("--stack", default="dev", help="stack file Pulumi.<STACK>.yaml (default: dev)")
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
        type=_hours,
        help=f"simulated hours (default: {HOURS:g}; for a shared host {SHARED_HOURS:g})",
    )
    parser.add_argument("--target", type=_count, help="target capacity (default: the stack's)")
    parser.add_argument(
        "--pool-size", type=_count, help="instances per unit of a trace sample (default: 8 for 0/1 traces)"
    )
    parser.add_argument(
        "--notice-share",
        type=_fraction,
        default=NOTICE_SHARE,
        help=f"share of interruptions announced 120 s ahead (default: {NOTICE_SHARE:g})",
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
    parser.set_defaults(run=partial(_run, "demo"))


def add_deploy(commands: Any) -> None:
    """Add ``deploy --local``: deploy a stack into an empty rehearsal and print its resources."""
    parser = commands.add_parser("deploy", help="deploy a stack into a local rehearsal and print its outputs")
    parser.add_argument(
        "--local", action="store_true", required=True, help="deploy locally (use `pulumi up` for AWS)"
    )
    parser.add_argument("--stack", default="dev", help="stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument("--tree", action="store_true", help="print all resources as a tree as well")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=partial(_run, "deploy"))


def _run(command: str, args: argparse.Namespace) -> int:
    """Run a command; raise ``UserError`` if moto is missing, which is installed apart."""
    try:
        module = importlib.import_module(f"rehearsal.commands.{command}")
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is missing, but this command needs it; run `pip install 'gpu-spot[local]'`, or in "
            "a clone `make setup`"
        ) from None
    return int(module.run(args))


def _count(text: str) -> int:
    return round(_number(text, lambda value: value >= 1 and text.isdecimal(), "a whole number of at least 1"))


def _hours(text: str) -> float:
    return _number(text, lambda value: 0 < value < 1e6, "a number of hours above 0")


def _fraction(text: str) -> float:
    return _number(text, lambda value: 0 <= value <= 1, "a number between 0 and 1")


def _number(text: str, is_allowed: Callable[[float], bool], allowed: str) -> float:
    with suppress(ValueError):
        if is_allowed(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
