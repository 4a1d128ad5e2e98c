"""Runs ``gpu-spot status``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.live import Live

from gpu_spot.commands.stack import clients_for, name_in_aws
from gpu_spot.commands.status import POLL_SECONDS
from gpu_spot.declared.stackfile import StackConfig, find_project, load
from gpu_spot.errors import ExitStatus, aws_error
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from gpu_spot.status import permissions, report
from gpu_spot.status.reader import StackReader
from gpu_spot.status.snapshot import DeclaredEntries, StackSnapshot
from gpu_spot.status.text import view
from infra.schema import Settings


def run(args: argparse.Namespace) -> int:
    """Show the stack with the caller's credentials."""
    config = load(find_project(), args.stack)
    args.stack = name_in_aws(config)
    if args.policy:
        _print(permissions.policy(args.stack, config.region))
        return 0
    return act(args, clients_for(args, config), config)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    config: StackConfig,
    wait: Callable[[], bool] | None = None,
    now: Callable[[], float] | None = None,
) -> int:
    """Show the stack through ``clients``. ``wait`` returns whether to poll again; by default until Ctrl-C."""
    declared = declared_entries(settings_of(config))
    reader = StackReader(clients, args.stack, config.region, declared, now)
    console = Console(markup=False, emoji=False)

    def read_snapshot() -> StackSnapshot:
        try:
            return reader.read(args.group)
        except (BotoCoreError, ClientError) as error:
            raise aws_error(f"stack {args.stack!r} in {config.region}", error) from None

    snapshot = read_snapshot()
    if args.json:
        _print(report.to_json(snapshot))
    elif not args.watch:
        console.print(view(snapshot))
    else:
        wait_for_next = wait or _wait
        with Live(view(snapshot), console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while wait_for_next():
                snapshot = read_snapshot()
                live.update(view(snapshot), refresh=True)
    return ExitStatus.DONE if snapshot.is_healthy else ExitStatus.ALARM


def declared_entries(settings: Settings) -> DeclaredEntries:
    """Return the entries that only the stack file knows."""
    return DeclaredEntries(
        tenants={host.name: tuple(tenant.name for tenant in host.tenants) for host in settings.shared_hosts},
        on_kubernetes=tuple(
            entry.name for entry in (*settings.on_kubernetes.services, *settings.on_kubernetes.training)
        ),
    )


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")


def _wait() -> bool:
    time.sleep(POLL_SECONDS)
    return True
