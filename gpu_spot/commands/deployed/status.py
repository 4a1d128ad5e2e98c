"""``gpu-spot status``: what a deployed stack does now."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.live import Live

from gpu_spot.commands import project
from gpu_spot.commands.deployed.stack import clients_of, of_stack
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from gpu_spot.status import account, permissions
from gpu_spot.status.reader import StackReader
from gpu_spot.status.seen import DeclaredEntries, StackSeen
from gpu_spot.status.text import view
from infra.schema import Settings
from pulumi_declared.stackfile import StackConfig, load

LOOK_EVERY: Final = 15.0
"""Seconds between two looks of ``--watch``: a look is some calls for each group, as the controller's own."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "status",
        help="what a deployed stack does now: alarms, groups, workers, jobs, money, last decisions",
        description="What a deployed stack does now. Only reads. The exit status is 1 where an alarm rings "
        "or a group cannot be looked at.",
    )
    of_stack(parser)
    parser.add_argument("--group", help="only this group (default: all)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--watch", action="store_true", help=f"look every {LOOK_EVERY:g} s until Ctrl-C")
    form.add_argument("--policy", action="store_true", help="print the IAM policy that this command needs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look in the account of the caller's credentials; errors are one line each."""
    config = load(project.find(), args.stack)
    if args.policy:
        _print(permissions.policy(args.stack, config.region))
        return 0
    return act(args, clients_of(args, config), config)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    config: StackConfig,
    wait: Callable[[], bool] | None = None,
    now: Callable[[], float] | None = None,
) -> int:
    """Show the stack through ``clients``; ``wait`` tells whether to look again, here until Ctrl-C."""
    declared = declared_in(settings_of(config))
    reader = StackReader(clients, args.stack, config.region, declared, now)
    console = Console()

    def look() -> StackSeen:
        try:
            return reader.look(args.group)
        except (BotoCoreError, ClientError) as error:
            raise ValueError(f"stack {args.stack!r} in {config.region}: {error}") from None

    seen = look()
    if args.json:
        _print(account.to_json(seen))
    elif not args.watch:
        console.print(view(seen))
    else:
        again = wait or _wait
        with Live(view(seen), console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while again():
                seen = look()
                live.update(view(seen), refresh=True)
    return 0 if seen.is_well else 1


def declared_in(settings: Settings) -> DeclaredEntries:
    """Return what only the stack file tells."""
    return DeclaredEntries(
        tenants={host.name: tuple(one.name for one in host.tenants) for host in settings.shared_hosts},
        on_kubernetes=tuple(
            entry.name for entry in (*settings.on_kubernetes.services, *settings.on_kubernetes.training)
        ),
    )


def _print(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told, indent=2)}\n")


def _wait() -> bool:
    time.sleep(LOOK_EVERY)
    return True
