"""``gpu-spot jobs``: watch and steer the training jobs of a deployed stack."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console, RenderableType
from rich.live import Live

from gpu_spot.commands import project
from gpu_spot.commands.deployed.stack import clients_of, of_stack
from gpu_spot.jobs import account
from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.logs import JobLog
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.status import standing
from gpu_spot.jobs.steering import Steering
from gpu_spot.jobs.text import job_card, jobs_table
from gpu_spot.preflight.account import ClientOf
from pulumi_declared.stackfile import load

LOOK_EVERY: Final = 5.0
"""Seconds between two looks of ``--watch`` and ``logs --follow``."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_JOB: Final = "its name"
_STEERING: Final = {
    "stop": "end a run without failing it: it saves, its volume stays, its capacity goes",
    "resume": "let a stopped run go on",
    "retry": "let a failed run begin again, with nothing counted against it",
}


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("jobs", help="watch and steer the training jobs of a deployed stack")
    parser.set_defaults(run=run, action="list", json=False, watch=False)
    of_stack(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.required = False
    _watching(actions, "list", "every job, its state and its host (the default)")
    _watching(actions, "show", "one job: its state and the timeline of its run").add_argument(
        "job", help=_JOB
    )
    logs = _action(actions, "logs", "what its instances have said")
    logs.add_argument("job", help=_JOB)
    form = logs.add_mutually_exclusive_group()
    form.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    form.add_argument("--json", action="store_true", help="print JSON")
    logs.add_argument(
        "--since",
        type=_length,
        default=3600.0,
        metavar="TIME",
        help="how far back, such as 90s, 10m, 2h, 1d (1h)",
    )
    for name, text in _STEERING.items():
        action = _action(actions, name, text)
        action.add_argument("job", help=_JOB)
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "resume":
            action.add_argument(
                "--budget", type=_dollars, metavar="USD", help="what the run may cost in all from now on"
            )


def run(args: argparse.Namespace) -> int:
    """Look or act in the account of the caller's credentials; raise ``UserError`` or ``JobError``."""
    config = load(project.find(), args.stack)
    return act(args, clients_of(args, config), config.region)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    region: str,
    wait: Callable[[], bool] | None = None,
) -> int:
    """Do what the arguments say through ``clients``; ``wait`` as in `JobLog.follow`, here until Ctrl-C."""
    reader = JobReader(clients, args.stack, region)
    try:
        if args.action in _STEERING:
            _steer(args, clients, reader)
        elif args.action == "logs":
            _logs(args, clients, reader, wait or _wait)
        else:
            _look(args, reader, wait or _wait)
    except (BotoCoreError, ClientError) as error:
        raise JobError(f"stack {args.stack!r} in {region}: {error}") from None
    return 0


def print_line(text: str) -> None:
    """Print one line as it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _look(args: argparse.Namespace, reader: JobReader, wait: Callable[[], bool]) -> None:
    if args.json:
        if args.action == "show":
            told: Any = account.to_json(reader.shown(args.job))
        else:
            told = [account.to_json(job) for job in reader.listed()]
        print_line(json.dumps(told, indent=2))
        return

    def seen() -> RenderableType:
        if args.action == "show":
            return job_card(reader.shown(args.job))
        return jobs_table(reader.listed(), args.stack)

    console = Console()
    if not args.watch:
        console.print(seen())
        return
    with Live(seen(), console=console, auto_refresh=False) as live:
        while wait():
            live.update(seen(), refresh=True)


def _steer(args: argparse.Namespace, clients: ClientOf, reader: JobReader) -> None:
    steering = Steering(clients, args.stack, reader)
    more = {"budget": args.budget} if args.action == "resume" else {}
    said = getattr(steering, args.action)(args.job, **more)
    if not args.json:
        print_line(said)
        return
    seen = reader.one(args.job)
    job = account.to_json(JobAccount(seen, standing(seen)))
    print_line(json.dumps({"action": args.action, "said": said, "job": job}, indent=2))


def _logs(args: argparse.Namespace, clients: ClientOf, reader: JobReader, wait: Callable[[], bool]) -> None:
    seen = reader.one(args.job)
    since = seen.now - args.since
    log = JobLog(clients("logs"), args.stack, seen.group or args.job)
    if args.json:
        lines = [asdict(line) for line in log.read(since)]
        print_line(json.dumps({"job": args.job, "since": since, "lines": lines}, indent=2))
        return
    for line in log.follow(since, wait) if args.follow else log.read(since):
        at = datetime.fromtimestamp(line.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print_line(f"{at} {line.instance} {line.text}")


def _wait() -> bool:
    time.sleep(LOOK_EVERY)
    return True


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    # What stands before the action counts unless it is said again behind it.
    of_stack(parser, stack=argparse.SUPPRESS, profile=argparse.SUPPRESS)
    return parser


def _watching(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = _action(actions, name, text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--watch", action="store_true", help="look again and again until Ctrl-C")
    return parser


def _dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = 0.0
    if not 0 < dollars < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of US dollars above 0, such as 250")
    return dollars


def _length(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]
