"""``gpu-spot review``: one comment for a pull request from the engine's previews and the forecasts."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_spot.commands import files
from gpu_spot.review import preview
from gpu_spot.review.comment import comment
from gpu_spot.review.judged import judged, to_json

_PREVIEW: Final = "what `pulumi preview --json --show-sames` prints"
_EVENTS: Final = "the --event-log of `pulumi preview`"
_FORECAST: Final = "what `gpu-spot forecast` prints"
_CHANGED: Final = 3
"""Exit status of ``--expect-no-changes`` where there are some; 1 and 2 say that something is wrong."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "review", help="say in one comment what a pull request does to workers, costs and policies"
    )
    parser.add_argument(
        "--preview",
        nargs="*",
        type=Path,
        required=True,
        metavar="FILE",
        help="`pulumi preview --json --show-sames` of an environment, in a file ENVIRONMENT.json",
    )
    parser.add_argument(
        "--events",
        nargs="*",
        type=Path,
        default=[],
        metavar="FILE",
        help="that preview's --event-log, ENVIRONMENT.jsonl, from which policies are read",
    )
    parser.add_argument(
        "--forecast",
        nargs="*",
        type=Path,
        default=[],
        metavar="FILE",
        help="what `gpu-spot forecast` printed for it, ENVIRONMENT.md",
    )
    parser.add_argument(
        "--address",
        default="",
        metavar="URL",
        help="the address of the whole output, which the comment links",
    )
    parser.add_argument(
        "--commit", default="", metavar="SHA", help="the commit that is looked at, which the comment names"
    )
    parser.add_argument("--out", type=Path, help="where the comment goes (default: standard output)")
    parser.add_argument(
        "--json", action="store_true", help="print JSON in place of the comment, which --out still writes"
    )
    parser.add_argument(
        "--expect-no-changes", action="store_true", help=f"exit {_CHANGED} where a resource changes (drift)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the comment; return 3 where no change was expected and there is one."""
    files.can_write("--out", args.out)
    policies = {file.stem: files.read("--events", file, _EVENTS, preview.complaints) for file in args.events}
    forecasts = {file.stem: files.read("--forecast", file, _FORECAST, str) for file in args.forecast}
    found = [
        files.read(
            "--preview", file, _PREVIEW, partial(preview.read, file.stem, found=policies.get(file.stem))
        )
        for file in sorted(args.preview)
    ]
    environments = judged(found, forecasts)
    if args.out is not None:
        files.write("--out", args.out, comment(environments, args.address, args.commit))
    if args.json:
        sys.stdout.write(f"{json.dumps(to_json(environments, args.address, args.commit), indent=2)}\n")
    elif args.out is None:
        sys.stdout.write(comment(environments, args.address, args.commit))
    changed = any(one.is_changed for one in environments)
    return _CHANGED if args.expect_no_changes and changed else 0
