"""``gpu-spot review``: render one pull request comment from engine previews and forecasts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_spot.commands import files
from gpu_spot.errors import ExitStatus
from gpu_spot.review import preview
from gpu_spot.review.comment import comment
from gpu_spot.review.environments import review_environments, to_json
from gpu_spot.review.verdict import EXIT_STATUS, verdict_of

_PREVIEW: Final = "the output of `pulumi preview --json --show-sames`"
_EVENTS: Final = "an event log of `pulumi preview --event-log`"
_FORECAST: Final = "the output of `gpu-spot forecast`"


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "review", help="summarize what a pull request does to workers, costs and policies"
    )
    parser.add_argument(
        "--preview",
        nargs="*",
        type=Path,
        required=True,
        metavar="FILE",
        help="output of `pulumi preview --json --show-sames` for an environment, named ENVIRONMENT.json",
    )
    of_environments = {
        "--events": "event log of that preview, named ENVIRONMENT.jsonl; the source of policy results",
        "--forecast": "output of `gpu-spot forecast` for the environment, named ENVIRONMENT.md",
        "--rules": "how many policy rules an environment has at which level, named ENVIRONMENT.rules",
    }
    for option, text in of_environments.items():
        parser.add_argument(option, nargs="*", type=Path, default=[], metavar="FILE", help=text)
    parser.add_argument(
        "--changed-policies",
        default="",
        metavar="PATHS",
        help="files of policies and their settings that the pull request changes, named first in the comment",
    )
    parser.add_argument(
        "--address", default="", metavar="URL", help="URL of the full output, linked in the comment"
    )
    parser.add_argument(
        "--commit", default="", metavar="SHA", help="commit under review, named in the comment"
    )
    parser.add_argument("--out", type=Path, help="file for the comment (default: standard output)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON instead of the comment; --out still writes the comment",
    )
    status = parser.add_mutually_exclusive_group()
    status.add_argument(
        "--expect-no-changes",
        action="store_true",
        help=f"exit with status {ExitStatus.EXCEEDED} if a resource changes (drift detection)",
    )
    status.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with status {EXIT_STATUS['ends']} if workers end, "
        f"{EXIT_STATUS['unknown']} if that is not known",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the comment. Returns 3 for a change that was not expected, or the verdict's status."""
    files.check_writable("--out", args.out)
    policies = {
        file.stem: files.read("--events", file, _EVENTS, preview.read_policy_events) for file in args.events
    }
    forecasts = {file.stem: files.read("--forecast", file, _FORECAST, str) for file in args.forecast}
    rules = {file.stem: files.read("--rules", file, "a number of rules", str.strip) for file in args.rules}
    previews = [
        files.read("--preview", file, _PREVIEW, partial(_read, file.stem, violations=policies.get(file.stem)))
        for file in sorted(args.preview)
    ]
    environments = review_environments(previews, forecasts, rules)
    render = partial(comment, environments, args.address, args.commit, args.changed_policies.split())
    verdict = verdict_of(environments)
    if args.out is not None:
        files.write("--out", args.out, render())
    if args.json:
        document = to_json(environments, verdict.to_json(), args.address, args.commit)
        sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
    elif args.out is None:
        sys.stdout.write(render())
    if args.strict:
        return EXIT_STATUS[verdict.outcome]
    changed = any(environment.is_changed for environment in environments)
    return ExitStatus.EXCEEDED if args.expect_no_changes and changed else 0


def _read(
    environment: str, text: str, violations: Sequence[preview.PolicyViolation] | None
) -> preview.Preview:
    """Read a preview; one that is cut off is reported like one that failed."""
    try:
        return preview.read(environment, text, violations)
    except ValueError as error:
        return preview.unreadable(environment, str(error), violations)
