"""``gpu-spot preflight``: what the first ``pulumi up`` of a stack would trip over in this account."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_spot.commands import project
from gpu_spot.preflight import account, stack
from gpu_spot.preflight.checks import CHECKS
from gpu_spot.preflight.inspection import inspect
from gpu_spot.preflight.remark import Remark
from pulumi_declared.errors import UserError

_STYLES: Final = {"ok": "green", "warning": "yellow", "failure": "bold red", "not known": "magenta"}


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "preflight", help="look up, in the real account, what a first `pulumi up` would trip over; only reads"
    )
    parser.add_argument("--stack", default="dev", help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument(
        "--profile", help="the AWS profile (default: the stack's aws:profile, or AWS's own order)"
    )
    parser.add_argument("--json", action="store_true", help="print remarks as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look and print; return 1 if there is a failure, 2 if stack file or credentials are no good."""
    try:
        wanted = stack.read(project.find(), args.stack)
        asked = account.connect(wanted.region, args.profile or wanted.profile)
    except UserError as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 2
    found = list(inspect(wanted, asked, CHECKS))
    if args.json:
        sys.stdout.write(_json(wanted, asked, found))
    else:
        _print(wanted, asked, found)
    return int(any(remark.status == "failure" for _, remark in found))


def _json(wanted: stack.Stack, asked: account.Account, found: Iterable[tuple[str, Remark]]) -> str:
    remarks = [{"check": check, **dataclasses.asdict(remark)} for check, remark in found]
    head = {"stack": wanted.name, "account": asked.id, "region": wanted.region}
    return json.dumps({**head, "remarks": remarks}, indent=2) + "\n"


def _print(wanted: stack.Stack, asked: account.Account, found: list[tuple[str, Remark]]) -> None:
    table = Table(title=f"stack {wanted.name} in account {asked.id}, {wanted.region}", show_lines=False)
    for column in ("check", "subject", "", "found", "what to do"):
        table.add_column(column, overflow="fold")
    shown = ""
    for check, remark in found:
        name, shown = ("" if check == shown else check), check
        status = Text(remark.status, style=_STYLES[remark.status])
        table.add_row(name, Text(remark.subject), status, Text(remark.found), Text(remark.advice))
    counts = {status: sum(one.status == status for _, one in found) for status in _STYLES}
    console = Console()
    console.print(table)
    console.print(", ".join(f"{status}: {count}" for status, count in counts.items()))
