"""``gpu-spot drill``: interrupt Spot Instances of a group on purpose and measure the recovery."""

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
from gpu_spot.commands.deployed.confirmation import confirm
from gpu_spot.commands.deployed.stack import add_stack_options, clients_for
from gpu_spot.commands.deployed.status import declared_entries
from gpu_spot.commands.rehearsed.installed import rehearsal_installed
from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.progress import DrillProgress
from gpu_spot.drill.text import lines
from gpu_spot.drill.watching import Drill
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from gpu_spot.status.reader import StackReader
from pulumi_declared.stackfile import StackConfig, load

POLL_SECONDS: Final = 10.0
_OUT: Final = Path("out/drill")


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "drill",
        help="interrupt Spot Instances of a group on purpose and report the recovery",
        description="Start the interruption drill that the stack declares for a group (capacity.drill), by "
        "AWS FIS: the declared number of its Spot Instances receive a two-minute interruption notice and are "
        "terminated. Wait until they are replaced and training jobs have resumed, and write a report. The "
        "exit status is 1 if the recovery takes more than an hour.",
    )
    add_stack_options(parser)
    parser.add_argument("--group", required=True, help="capacity group to drill")
    parser.add_argument("--rehearse", action="store_true", help="run in a local rehearsal instead of on AWS")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--out", type=Path, default=_OUT, help=f"directory of the report (default: {_OUT})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a drill on AWS or in a rehearsal."""
    files.check_directory_writable("--out", args.out)
    config = load(project.find(), args.stack)
    return rehearsed(args, config) if args.rehearse else act(args, clients_for(args, config), config)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    config: StackConfig,
    wait: Callable[[], object] = lambda: time.sleep(POLL_SECONDS),
) -> int:
    """Run a drill on a deployed group through ``clients``."""
    try:
        drill = create_drill(args, clients, config)
        template, stack = drill.plan()
        _confirm(args, config)
        progress = drill.start(template, stack)
        sys.stderr.write(
            f"started AWS FIS experiment {drill.experiment}; it continues if this command ends\n"
        )
        wait()
        while drill.poll(progress):
            wait()
    except (BotoCoreError, ClientError) as error:
        raise DrillError(f"stack {args.stack!r} in {config.region}: {error}") from None
    return report(args, progress)


def rehearsed(args: argparse.Namespace, config: StackConfig) -> int:
    """Deploy into a rehearsal and drill there; a group without ``capacity.drill`` loses one instance."""
    with rehearsal_installed():
        from rehearsal.commands import drill
    return report(args, drill.rehearse(args.group, project.find(), config, partial(create_drill, args)))


def create_drill(
    args: argparse.Namespace, clients: ClientOf, config: StackConfig, now: Callable[[], float] | None = None
) -> Drill:
    """Return the drill of a group through ``clients``."""
    declared = declared_entries(settings_of(config))
    reader = StackReader(clients, args.stack, config.region, declared, now)
    started = DrillExperiments(clients("fis"), args.stack, args.group)
    return Drill(started, lambda: reader.read(args.group), reader.job_timeline)


def _confirm(args: argparse.Namespace, config: StackConfig) -> None:
    if args.yes:
        return
    question = f"Interrupt Spot Instances of {args.group} in stack {args.stack} ({config.region})?"
    confirm(question, "drill cancelled: nothing was started", DrillError)


def report(args: argparse.Namespace, progress: DrillProgress) -> int:
    """Write and print the report of a drill. Returns 1 if the group did not recover in time."""
    text = json.dumps({"stack": args.stack, "rehearsed": args.rehearse, **progress.to_json()}, indent=2)
    path = args.out / f"{args.stack}-{args.group}.json"
    files.write("--out", path, f"{text}\n")
    if args.json:
        sys.stdout.write(f"{text}\n")
    else:
        console = Console()
        for line in (*lines(progress), f"report: {path}"):
            console.print(line, soft_wrap=True, highlight=False)
    return 0 if progress.is_recovered else 1
