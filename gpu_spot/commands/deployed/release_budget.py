"""``gpu-spot release-budget``: release a group's hourly budget for some hours."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.hourly_budget import MAX_RELEASE_HOURS
from gpu_spot.commands import project
from gpu_spot.commands.deployed.stack import add_stack_options, clients_for
from gpu_spot.control import release_budget
from gpu_spot.preflight.account import ClientOf
from pulumi_declared.stackfile import StackConfig, load

DEFAULT_HOURS: Final = 1.0


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "release-budget",
        help="let a group exceed its hourly budget for some hours",
        description="Release the hourly budget of a group (capacity.budget): until the release ends, only "
        "capacity.max limits it. The release is stored in the group's control parameter, whose history has "
        "the caller and the reason, and each decision of the controller names it.",
    )
    add_stack_options(parser)
    parser.add_argument("--group", required=True, help="group whose budget is released")
    parser.add_argument(
        "--hours",
        type=float,
        default=DEFAULT_HOURS,
        metavar="N",
        help=f"duration, at most {MAX_RELEASE_HOURS} (default: {DEFAULT_HOURS:g}); 0 ends a release",
    )
    parser.add_argument("--reason", help="reason of the release; required unless --hours is 0")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Release the budget with the caller's credentials."""
    config = load(project.find(), args.stack)
    return act(args, clients_for(args, config), config)


def act(
    args: argparse.Namespace, clients: ClientOf, config: StackConfig, now: Callable[[], float] = time.time
) -> int:
    """Release the budget of a deployed group through ``clients``."""
    try:
        done = release_budget(clients("ssm"), args.stack, args.group, args.hours, args.reason or "", now())
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"stack {args.stack!r} in {config.region}: {error}") from None
    sys.stdout.write(f"{done}\n")
    return 0
