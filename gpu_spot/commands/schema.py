"""``gpu-spot schema``: print the JSON Schema of a stack file, or a page of the reference."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("schema", help="print the JSON Schema of stack files, for editors")
    pages = parser.add_mutually_exclusive_group()
    pages.add_argument(
        "--page", action="store_true", help="print the reference page docs/stack-file.md instead"
    )
    pages.add_argument(
        "--options", action="store_true", help="print the reference page docs/options.md instead"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the schema or a page."""
    from gpu_spot.reference import options
    from gpu_spot.reference.keys import stack_file
    from gpu_spot.reference.page import page

    if args.options:
        text = options.page(args.whole())
    else:
        text = page() if args.page else json.dumps(stack_file(), indent=2) + "\n"
    sys.stdout.write(text)
    return 0
