"""``gpu-spot aws-check``: try on AWS what the product takes from AWS's documentation."""

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

from gpu_spot.aws_check import cost, table
from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.cleaning import clean_up
from gpu_spot.aws_check.lab import Lab
from gpu_spot.aws_check.trial import Outcome, Verdict, tried
from gpu_spot.commands import project
from gpu_spot.commands.rehearsed.installed import installed
from gpu_spot.preflight import account
from pulumi_declared.errors import UserError

PAGE: Final = Path("docs", "aws-check.md")
_STYLES: Final[dict[Verdict, str]] = {
    "held": "green",
    "falsified": "bold red",
    "not tried": "yellow",
    "not playable here": "dim",
}


class WallClock:
    """The time of the world. See ``Timekeeper``."""

    def now(self) -> float:
        """Return the time."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "aws-check", help="try on AWS, with small instances, what this product takes from its documentation"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--yes-spend-money", action="store_true", help="on AWS, with the caller's credentials and money"
    )
    where.add_argument(
        "--rehearse", action="store_true", help="on moto: shows that this program works, nothing of AWS"
    )
    where.add_argument("--clean-up-only", action="store_true", help="delete what earlier runs left on AWS")
    parser.add_argument("--region", default="us-east-1", help="with a default VPC (default: us-east-1)")
    parser.add_argument("--profile", help="the AWS profile (default: AWS's own order)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these assumptions (default: all)")
    parser.add_argument(
        "--cap", type=float, default=1.0, metavar="USD", help="refuse to start above this (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, the course of it on stderr")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Report:
    """What a run came to. ``account`` is None on moto, ``page`` where none was written."""

    region: str
    account: str | None
    outcomes: Sequence[Outcome]
    left: Sequence[str]
    page: str | None = None

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many assumptions came to each verdict."""
        counted = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: counted[verdict] for verdict in _STYLES}

    @property
    def is_well(self) -> bool:
        """Whether nothing is falsified and nothing is left."""
        return not self.counts["falsified"] and not self.left

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        outcomes = [
            {
                "name": one.assumption.name,
                "says": one.assumption.says,
                "verdict": one.verdict,
                "seen": one.seen,
            }
            for one in self.outcomes
        ]
        return {
            "region": self.region,
            "account": self.account,
            "is_well": self.is_well,
            "counts": self.counts,
            "outcomes": outcomes,
            "left": list(self.left),
            "page": self.page,
        }


def run(args: argparse.Namespace) -> int:
    """Try and print; 1 where an assumption is falsified or something is left, 2 where nothing was started."""
    console = Console(stderr=args.json)
    try:
        assumptions = _chosen(args.only)
        if args.rehearse:
            return _told(_rehearsed(assumptions, args.region, console), args, console)
        asked = account.connect(args.region, args.profile)
        if args.clean_up_only:
            left = clean_up(asked.clients, WallClock())
            return _told(Report(args.region, asked.id, (), left), args, console)
        most = cost.at_most(assumptions)
        if most > args.cap:
            raise UserError(f"this run may cost ${most:.2f}, allowed: --cap {args.cap:g}")
        root = project.find()
    except UserError as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 2
    console.print(
        f"account {asked.id}, {args.region}: at most ${most:.2f} for {len(assumptions)} assumptions"
    )
    lab = Lab(asked.clients, WallClock(), secrets.token_hex(4))
    outcomes, left = tried(lab, assumptions, on_moto=False, heard=lambda outcome: _tell(outcome, console))
    page = None
    if args.only is None:
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        (root / PAGE).write_text(table.run_on_aws(outcomes, args.region, day), encoding="utf-8")
        page = str(PAGE)
        console.print(f"written: {page}")
    return _told(Report(args.region, asked.id, outcomes, left, page), args, console)


def _chosen(names: Sequence[str] | None) -> Sequence[Assumption]:
    known = {assumption.name: assumption for assumption in ASSUMPTIONS}
    for name in names or ():
        if name not in known:
            raise UserError(f"no assumption {name!r}, allowed: {', '.join(known)}")
    return ASSUMPTIONS if names is None else [known[name] for name in names]


def _rehearsed(assumptions: Sequence[Assumption], region: str, console: Console) -> Report:
    with installed():
        from rehearsal.aws_check import rehearsed
    console.print("rehearsed on moto: this tells nothing of AWS, and the page in docs/ stays as it is")
    with rehearsed(region) as lab:
        outcomes, left = tried(lab, assumptions, on_moto=True, heard=lambda outcome: _tell(outcome, console))
    return Report(region, None, outcomes, left)


def _tell(outcome: Outcome, console: Console) -> None:
    console.print(f"{outcome.verdict:18}", style=_STYLES[outcome.verdict], end="", highlight=False)
    console.print(f"{outcome.assumption.name}: {outcome.seen}", markup=False, highlight=False, soft_wrap=True)


def _told(report: Report, args: argparse.Namespace, console: Console) -> int:
    if args.json:
        sys.stdout.write(f"{json.dumps(report.to_json(), indent=2)}\n")
        return int(not report.is_well)
    if not args.clean_up_only:
        counts = ", ".join(f"{verdict}: {count}" for verdict, count in report.counts.items())
        console.print(counts, highlight=False)
    left = report.left
    console.print("nothing is left" if not left else f"still there: {', '.join(left)}", markup=False)
    return int(not report.is_well)
