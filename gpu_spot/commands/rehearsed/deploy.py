"""``gpu-spot deploy --local``: run the program into an empty local cloud and show what it made."""

from __future__ import annotations

import argparse
from typing import Any

from gpu_spot.commands.rehearsed.installed import installed


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("deploy", help="deploy a stack into the local cloud and print its outputs")
    parser.add_argument(
        "--local", action="store_true", required=True, help="into the local cloud (`pulumi up` is for AWS)"
    )
    parser.add_argument("--stack", default="dev", help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deploy, print resources, outputs and what policies say; return 1 where one forbids it."""
    with installed():
        from rehearsal.commands import deploy
    return deploy.run(args)
