"""Runs ``gpu-spot preflight``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_spot.declared.stackfile import find_project
from gpu_spot.errors import ExitStatus, UserError
from gpu_spot.preflight import account, stack
from gpu_spot.preflight.check_result import NOT_ASKED, CheckResult, run_checks
from gpu_spot.preflight.checks import CHECKS
from gpu_spot.progress import progress

_STYLES: Final = {"ok": "green", "warning": "yellow", "failure": "bold red", "not known": "magenta"}


def run(args: argparse.Namespace) -> int:
    """Check and print. Raises ``UserError`` if an option, the stack file or the credentials are invalid."""
    if args.only not in (None, *CHECKS):
        raise UserError(f"--only is {args.only!r}; use one of: {', '.join(CHECKS)}")
    declared_stack = stack.read(find_project(), args.stack)
    aws_account = account.connect(declared_stack.region, args.profile or declared_stack.profile)
    checks = {args.only: CHECKS[args.only]} if args.only else CHECKS
    with progress("checking the account") as on_progress:
        results = list(run_checks(declared_stack, aws_account, checks, on_progress))
    if args.json:
        sys.stdout.write(_json(declared_stack, aws_account, results))
    else:
        _print(declared_stack, aws_account, results)
    if any(result.status == "failure" for _, result in results):
        return ExitStatus.ALARM
    return ExitStatus.AWS if any(result.subject == NOT_ASKED for _, result in results) else ExitStatus.DONE


def _json(
    declared_stack: stack.Stack, aws_account: account.Account, results: Iterable[tuple[str, CheckResult]]
) -> str:
    entries = [{"check": check, **result.to_json()} for check, result in results]
    head = {"stack": declared_stack.name, "account": aws_account.id, "region": declared_stack.region}
    return json.dumps({**head, "remarks": entries}, indent=2) + "\n"


def _print(
    declared_stack: stack.Stack, aws_account: account.Account, results: list[tuple[str, CheckResult]]
) -> None:
    table = Table(title=f"stack {declared_stack.name} in account {aws_account.id}, {declared_stack.region}")
    for column in ("check", "subject", "status", "finding", "action"):
        table.add_column(column, overflow="fold")
    shown = ""
    for check, result in results:
        name, shown = ("" if check == shown else check), check
        status = Text(result.status, style=_STYLES[result.status])
        is_fine = result.status == "ok"
        action = result.advice if is_fine or not result.key else f"{result.key}: {result.advice}".rstrip(": ")
        table.add_row(name, Text(result.subject), status, Text(result.finding), Text(action))
    counts = {status: sum(result.status == status for _, result in results) for status in _STYLES}
    console = Console(markup=False, emoji=False)
    console.print(table)
    console.print(", ".join(f"{status}: {count}" for status, count in counts.items()))
