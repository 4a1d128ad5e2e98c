"""``gpu-spot jobs``: observe and control the training jobs of a deployed stack."""

from __future__ import annotations

import argparse
import math
import re
from typing import Any, Final

from gpu_spot.commands.stack import add_stack_options

POLL_SECONDS: Final = 5.0
"""Poll interval of ``--watch`` and ``logs --follow``."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_JOB: Final = "name of the job"
ADOPT: Final = "adopt-volume"
STEERING: Final = {
    "run": "start a run of a job with a schedule now; the schedule goes on",
    "stop": "stop a run: it saves a checkpoint, keeps its volume and releases its capacity",
    "resume": "resume a stopped run",
    "retry": "restart a failed run and reset its failure counters",
}


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("jobs", help="observe and control the training jobs of a deployed stack")
    parser.set_defaults(run=run, action="list", json=False, watch=False)
    add_stack_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.required = False
    _watching(actions, "list", "list all jobs with their state and host (the default)")
    _watching(actions, "show", "show a job: its state and the timeline of its run").add_argument(
        "job", help=_JOB
    )
    logs = _action(actions, "logs", "print the logs of a job's instances")
    logs.add_argument("job", help=_JOB)
    form = logs.add_mutually_exclusive_group()
    form.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    form.add_argument("--json", action="store_true", help="print JSON")
    logs.add_argument(
        "--since",
        type=_duration,
        default=3600.0,
        metavar="TIME",
        help="start this long ago, such as 90s, 10m, 2h, 1d (default: 1h)",
    )
    for name, text in STEERING.items():
        action = _action(actions, name, text)
        action.add_argument("job", help=_JOB)
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "resume":
            action.add_argument("--budget", type=_dollars, metavar="USD", help="new total budget of the run")
        elif name == "run":
            action.add_argument(
                "--set",
                dest="changes",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="for this run only: an environment variable, or --set=--NAME=VALUE to add an argument",
            )
    adopt = _action(
        actions,
        ADOPT,
        "give a job without a data volume an existing one, such as that of an earlier training",
    )
    adopt.add_argument("job", help=_JOB)
    which = adopt.add_mutually_exclusive_group()
    which.add_argument(
        "volume",
        nargs="?",
        default="",
        help="ID of the volume or snapshot (default: the only one that has the name of jobs' volumes and "
        "belongs to no job)",
    )
    which.add_argument(
        "--blank",
        action="store_true",
        help="adopt none: mark those that belong to no job as unused, so that new jobs of the region start "
        "with blank volumes",
    )
    adopt.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    adopt.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run an action with the caller's credentials. Raises ``UserError`` or ``JobError``."""
    from gpu_spot.jobs import command

    return command.run(args)


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    # An option before the action applies unless it is repeated after it.
    add_stack_options(parser, stack=argparse.SUPPRESS, profile=argparse.SUPPRESS)
    return parser


def _watching(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = _action(actions, name, text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    return parser


def _dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = 0.0
    if not 0 < dollars < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of US dollars above 0, such as 250")
    return dollars


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]
