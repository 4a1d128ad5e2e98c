"""``gpu-spot aws-check``: verify on AWS the behavior that this product takes from AWS documentation."""

from __future__ import annotations

import argparse
import datetime
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from gpu_spot.aws_check import calls, cost, results, table
from gpu_spot.aws_check.assumption import GROUPS, Assumption, CostGroup
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.aws_test_bed import AwsTestBed
from gpu_spot.aws_check.cleaning import clean_up
from gpu_spot.aws_check.trial import Outcome, Verdict, run_assumptions
from gpu_spot.commands import project
from gpu_spot.commands.rehearsed.installed import rehearsal_installed
from gpu_spot.preflight import account, prices
from pulumi_declared.errors import UserError

PAGE: Final = Path("docs", "aws-check.md")
_STYLES: Final[dict[Verdict, str]] = {
    "held": "green",
    "falsified": "bold red",
    "not tried": "yellow",
    "not playable here": "dim",
}


class WallClock:
    """The system clock. See ``Clock``."""

    def now(self) -> float:
        """Return the current time."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "aws-check", help="verify on AWS, with small instances, the AWS behavior that this product relies on"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--yes-spend-money",
        action="store_true",
        help="run on AWS with your credentials; the account is charged",
    )
    where.add_argument(
        "--dry-run", action="store_true", help="list the AWS calls and the cost of the tests; makes no call"
    )
    where.add_argument("--rehearse", action="store_true", help="run on moto: tests this program, not AWS")
    where.add_argument(
        "--clean-up-only", action="store_true", help="delete resources that earlier runs left on AWS"
    )
    where.add_argument("--page", action="store_true", help=f"print {PAGE} with the results in {results.FILE}")
    parser.add_argument(
        "--region", default=prices.REGION, help=f"region with a default VPC (default: {prices.REGION})"
    )
    parser.add_argument("--profile", help="AWS profile (default: the AWS credential chain)")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="check only these assumptions; GPU instances need this"
    )
    parser.add_argument(
        "--dollars",
        type=int,
        choices=GROUPS,
        default=GROUPS[0],
        help="check what this amount pays for; the run does not start if it could cost more (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; progress goes to stderr")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class AwsCheckReport:
    """The result of a run. ``account`` is None on moto, ``page`` if no page was written."""

    region: str
    account: str | None
    outcomes: Sequence[Outcome]
    leftovers: Sequence[str]
    page: str | None = None

    @property
    def counts(self) -> dict[Verdict, int]:
        """The number of assumptions by verdict."""
        counted = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: counted[verdict] for verdict in _STYLES}

    @property
    def is_ok(self) -> bool:
        """Whether no assumption is falsified and nothing is left over."""
        return not self.counts["falsified"] and not self.leftovers

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        outcomes = [
            {
                "name": outcome.assumption.name,
                "says": outcome.assumption.statement,
                "verdict": outcome.verdict,
                "seen": outcome.observation,
            }
            for outcome in self.outcomes
        ]
        return {
            "region": self.region,
            "account": self.account,
            "is_well": self.is_ok,
            "counts": self.counts,
            "outcomes": outcomes,
            "left": list(self.leftovers),
            "page": self.page,
        }


def run(args: argparse.Namespace) -> int:
    """Check and print.

    Returns 1 if an assumption is falsified or resources are left, 2 if nothing was started.
    """
    console = Console(stderr=args.json)
    try:
        if args.page:
            sys.stdout.write(table.page(ASSUMPTIONS, results.read(project.find() / results.FILE)))
            return 0
        assumptions = _select_assumptions(args.only, None if args.rehearse else args.dollars)
        if args.rehearse:
            return _print_report(_rehearse(assumptions, args.region, console), args, console)
        if args.dry_run:
            return _print_report(_dry_run(assumptions, args.region, console), args, console)
        aws_account = account.connect(args.region, args.profile)
        if args.clean_up_only:
            leftovers = clean_up(aws_account.clients, WallClock())
            return _print_report(AwsCheckReport(args.region, aws_account.id, (), leftovers), args, console)
        max_cost_usd = cost.max_cost(assumptions, args.region)
        if max_cost_usd > args.dollars:
            raise UserError(f"estimated cost is up to ${max_cost_usd:.2f}, above --dollars {args.dollars}")
        root = project.find()
        stored = results.read(root / results.FILE)
    except UserError as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 2
    console.print(f"account {aws_account.id}, {args.region}")
    _print_cost(assumptions, args.region, console)
    run_id = secrets.token_hex(4)
    test_bed = AwsTestBed(
        aws_account.clients,
        WallClock(),
        run_id,
        lambda role: account.assume(aws_account.clients, role, f"gpu-spot-check-{run_id}"),
    )
    outcomes, leftovers = run_assumptions(
        test_bed, assumptions, on_moto=False, on_outcome=lambda outcome: _print_outcome(outcome, console)
    )
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    after = results.merged(stored, outcomes, args.region, day)
    (root / results.FILE).write_text(results.dumps(after), encoding="utf-8")
    (root / PAGE).write_text(table.page(ASSUMPTIONS, after), encoding="utf-8")
    console.print(f"written: {results.FILE}, {PAGE}")
    return _print_report(
        AwsCheckReport(args.region, aws_account.id, outcomes, leftovers, str(PAGE)), args, console
    )


def _select_assumptions(names: Sequence[str] | None, dollars: CostGroup | None) -> Sequence[Assumption]:
    """Return the named assumptions, else those of a cost group without GPU instances, else all."""
    by_name = {assumption.name: assumption for assumption in ASSUMPTIONS}
    for name in names or ():
        if name not in by_name:
            raise UserError(f"unknown assumption {name!r}, allowed: {', '.join(by_name)}")
    if names is not None:
        return [by_name[name] for name in names]
    return [a for a in ASSUMPTIONS if dollars is None or (a.dollars <= dollars and not a.by_name_only)]


def _print_cost(assumptions: Sequence[Assumption], region: str, console: Console) -> None:
    lines = (
        f"{len(assumptions)} tests, at most ${cost.max_cost(assumptions, region):.2f}",
        f"prices: {'; '.join(cost.sources(assumptions, region))}",
        f"not counted: {'; '.join(cost.NOT_COUNTED)}",
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _dry_run(assumptions: Sequence[Assumption], region: str, console: Console) -> AwsCheckReport:
    """List the calls of each test; account None, every verdict is ``not tried``."""
    _print_cost(assumptions, region, console)
    outcomes = [Outcome(a, "not tried", ", ".join(calls.operations(a)) or "none") for a in assumptions]
    for outcome in outcomes:
        _print_outcome(outcome, console)
    return AwsCheckReport(region, None, outcomes, ())


def _rehearse(assumptions: Sequence[Assumption], region: str, console: Console) -> AwsCheckReport:
    with rehearsal_installed():
        from rehearsal.aws_check import rehearsed
    console.print(
        "rehearsal on moto: the result says nothing about AWS, and docs/aws-check.md is not changed"
    )
    with rehearsed(region) as test_bed:
        outcomes, leftovers = run_assumptions(
            test_bed, assumptions, on_moto=True, on_outcome=lambda outcome: _print_outcome(outcome, console)
        )
    missing = Counter(outcome.observation for outcome in outcomes if outcome.verdict == "not playable here")
    console.print(f"{len(outcomes)} statements, {len(outcomes) - missing.total()} played", highlight=False)
    for reason, count in missing.most_common():
        console.print(f"{count} not playable: {reason}", markup=False, highlight=False, soft_wrap=True)
    return AwsCheckReport(region, None, outcomes, leftovers)


def _print_outcome(outcome: Outcome, console: Console) -> None:
    console.print(f"{outcome.verdict:18}", style=_STYLES[outcome.verdict], end="", highlight=False)
    console.print(
        f"{outcome.assumption.name}: {outcome.observation}", markup=False, highlight=False, soft_wrap=True
    )


def _print_report(report: AwsCheckReport, args: argparse.Namespace, console: Console) -> int:
    if args.json:
        sys.stdout.write(f"{json.dumps(report.to_json(), indent=2)}\n")
        return int(not report.is_ok)
    if not args.clean_up_only:
        counts = ", ".join(f"{verdict}: {count}" for verdict, count in report.counts.items())
        console.print(counts, highlight=False)
    leftovers = report.leftovers
    console.print(
        "no resources left over" if not leftovers else f"left over: {', '.join(leftovers)}", markup=False
    )
    return int(not report.is_ok)
