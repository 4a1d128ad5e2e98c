"""``gpu-spot status``: show the current state of a deployed stack."""

from __future__ import annotations

import argparse
from typing import Any, Final

from gpu_spot.commands.stack import add_stack_options

POLL_SECONDS: Final = 15.0
"""Poll interval of ``--watch``. Each poll makes several calls per group, as the controller does."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "status",
        help="show a deployed stack: alarms, groups, workers, jobs, cost and recent decisions",
        description="Show the current state of a deployed stack. Read-only. The exit status is 1 if an alarm "
        "is in state ALARM or a group cannot be read.",
    )
    add_stack_options(parser)
    parser.add_argument("--group", help="show only this group (default: all)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--watch", action="store_true", help=f"refresh every {POLL_SECONDS:g} s until Ctrl-C")
    form.add_argument("--policy", action="store_true", help="print the IAM policy that this command requires")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show the stack with the caller's credentials. Raises ``UserError``."""
    from gpu_spot.status import command

    return command.run(args)
