"""``gpu-spot deploy --local``: deploy a stack into an empty rehearsal and print its resources."""

from __future__ import annotations

import argparse
from typing import Any

from gpu_spot.commands.rehearsed.installed import rehearsal_installed


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("deploy", help="deploy a stack into a local rehearsal and print its outputs")
    parser.add_argument(
        "--local", action="store_true", required=True, help="deploy locally (use `pulumi up` for AWS)"
    )
    parser.add_argument("--stack", default="dev", help="stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deploy and print resources, outputs and policy results. Returns 1 if a mandatory policy is violated."""
    with rehearsal_installed():
        from rehearsal.commands import deploy
    return deploy.run(args)
