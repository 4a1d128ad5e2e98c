"""``gpu-spot deploy --local``: run the program into an empty local cloud and show what it made."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console

from gpu_spot.commands import project
from pulumi_on_moto import load, sandbox, tree


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("deploy", help="deploy a stack into the local cloud and print its outputs")
    parser.add_argument(
        "--local", action="store_true", required=True, help="into the local cloud (`pulumi up` is for AWS)"
    )
    parser.add_argument("--stack", default="dev", help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deploy and print the resource tree with the outputs; errors are ``LocalCloudError``."""
    console = Console()
    started = time.perf_counter()
    config = load(project.find(), args.stack)
    with sandbox(config.region) as clients:
        deployment = project.deployed(clients, config)
        console.print(tree(deployment))
        made = sum(not resource.is_component for resource in deployment.resources)
        console.print(
            f"\n{made} resources created in {time.perf_counter() - started:.1f} s, gone when this ends."
        )
    return 0
