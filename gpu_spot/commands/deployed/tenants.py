"""``gpu-spot tenants``: the bill of a deployed stack's shared hosts by tenant."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.commands import project
from gpu_spot.commands.deployed.stack import add_stack_options, clients_for
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from gpu_spot.tenants import bill
from gpu_spot.tenants.reader import BillError, UsageReader, period_of
from infra.schema import Settings
from pulumi_declared.stackfile import load


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("tenants", help="print the bill of a shared host by tenant")
    parser.set_defaults(run=run)
    add_stack_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    billing = actions.add_parser(
        "bill",
        help="print a month's bill as CSV",
        description="Print what each tenant of the shared hosts used and its part of what they cost, as CSV. "
        "The parts of the tenants and the idle line add up to the host's line. An hour whose price is "
        "unknown is in no part, and counted. Volumes, snapshots and data transfer are not included.",
    )
    # An option before the action applies unless it is repeated after it.
    add_stack_options(billing, stack=argparse.SUPPRESS, profile=argparse.SUPPRESS)
    billing.add_argument("--month", required=True, metavar="YYYY-MM", help="the month (UTC)")
    billing.add_argument("--host", help="only this shared host (default: all)")
    billing.add_argument(
        "--tenant",
        action="append",
        default=[],
        help="also a tenant removed more than two weeks ago; may be repeated (default: it is idle)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the bill with the caller's credentials. Raises ``UserError`` or ``BillError``."""
    config = load(project.find(), args.stack)
    return act(args, clients_for(args, config), settings_of(config), datetime.now(UTC))


def act(args: argparse.Namespace, clients: ClientOf, settings: Settings, now: datetime) -> int:
    """Print the bill through ``clients``."""
    declared = {host.name: {tenant.name for tenant in host.tenants} for host in settings.shared_hosts}
    if not declared or args.host not in {None, *declared}:
        listed = ", ".join(sorted(declared)) or "none; the stack file has no sharedHosts"
        raise BillError(f"--host is {args.host!r}, allowed: {listed}")
    period = period_of(args.month, now)
    reader = UsageReader(clients("cloudwatch"), args.stack)
    lines = {}
    try:
        for host in sorted(declared) if args.host is None else [args.host]:
            tenants = {*declared[host], *reader.tenants(host), *args.tenant}
            lines[host] = bill.divide(reader.hours(host, tenants, period))
    except (BotoCoreError, ClientError) as error:
        raise BillError(f"stack {args.stack!r}: {error}") from None
    sys.stdout.write(bill.to_csv(period.month, lines))
    return 0
