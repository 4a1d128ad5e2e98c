"""``gpu-spot preflight``: check an account for problems before the first ``pulumi up``."""

from __future__ import annotations

import argparse
from typing import Any

from gpu_spot.commands.stack import add_stack_options


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "preflight", help="check the AWS account for problems before the first `pulumi up`; read-only"
    )
    add_stack_options(parser)
    parser.add_argument("--only", metavar="CHECK", help='one check by its name in the report: "node agents"')
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check and print. Raises ``UserError``."""
    from gpu_spot.preflight import command

    return command.run(args)
