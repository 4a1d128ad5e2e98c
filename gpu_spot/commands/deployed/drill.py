"""``gpu-spot drill``: take spot instances of a group on purpose, and see what comes of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from gpu_spot.commands import files, project
from gpu_spot.commands.deployed.stack import clients_of, of_stack
from gpu_spot.commands.deployed.status import declared_in
from gpu_spot.commands.rehearsed.installed import installed
from gpu_spot.drill.course import DrillCourse
from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.text import lines
from gpu_spot.drill.watching import Drill
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from gpu_spot.status.reader import StackReader
from pulumi_declared.stackfile import StackConfig, load

LOOK_EVERY: Final = 10.0
_OUT: Final = Path("out/drill")


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "drill",
        help="take spot instances of a group on purpose, and report what was lost and how long",
        description="Start the interruption drill that the stack declares for a group (capacity.drill), by "
        "AWS FIS: as many of its spot instances as that says get AWS's two-minute notice and are ended. "
        "Watch until they are replaced and training jobs go on, and write a report. The exit status is 1 "
        "where that takes more than an hour.",
    )
    of_stack(parser)
    parser.add_argument("--group", required=True, help="the group to drill")
    parser.add_argument(
        "--rehearse", action="store_true", help="on this machine, in the local cloud, not on AWS"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before instances are taken")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--out", type=Path, default=_OUT, help=f"folder of the report (default: {_OUT})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Drill on AWS or in the local cloud; errors are one line each."""
    files.can_hold("--out", args.out)
    config = load(project.find(), args.stack)
    return rehearsed(args, config) if args.rehearse else act(args, clients_of(args, config), config)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    config: StackConfig,
    wait: Callable[[], object] = lambda: time.sleep(LOOK_EVERY),
) -> int:
    """Drill a deployed group through ``clients``."""
    try:
        drill = drill_of(args, clients, config)
        template, seen = drill.plan()
        _agreed(args, config)
        course = drill.start(template, seen)
        sys.stderr.write(f"experiment {drill.experiment} of AWS FIS goes on, whether it is watched or not\n")
        wait()
        while drill.follow(course):
            wait()
    except (BotoCoreError, ClientError) as error:
        raise DrillError(f"stack {args.stack!r} in {config.region}: {error}") from None
    return report(args, course)


def rehearsed(args: argparse.Namespace, config: StackConfig) -> int:
    """Deploy into the local cloud and drill there; a group that declares none is drilled of one instance."""
    with installed():
        from rehearsal.commands import drill
    return report(args, drill.course(args.group, project.find(), config, partial(drill_of, args)))


def drill_of(
    args: argparse.Namespace, clients: ClientOf, config: StackConfig, now: Callable[[], float] | None = None
) -> Drill:
    """Return the drill of a group through ``clients``."""
    declared = declared_in(settings_of(config))
    reader = StackReader(clients, args.stack, config.region, declared, now)
    started = DrillExperiments(clients("fis"), args.stack, args.group)
    return Drill(started, lambda: reader.look(args.group), reader.story)


def _agreed(args: argparse.Namespace, config: StackConfig) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise DrillError("nobody can be asked here, allowed: --yes, which takes instances without asking")
    question = f"Take spot instances of {args.group} in stack {args.stack} ({config.region})? [y/N] "
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DrillError("nothing was started")


def report(args: argparse.Namespace, course: DrillCourse) -> int:
    """Write and print the report of a drill; return 1 where it took too long."""
    text = json.dumps({"stack": args.stack, "rehearsed": args.rehearse, **course.to_json()}, indent=2)
    path = args.out / f"{args.stack}-{args.group}.json"
    files.write("--out", path, f"{text}\n")
    if args.json:
        sys.stdout.write(f"{text}\n")
    else:
        console = Console()
        for line in (*lines(course), f"report: {path}"):
            console.print(line, soft_wrap=True, highlight=False)
    return 0 if course.is_overcome else 1
