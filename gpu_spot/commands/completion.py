"""``gpu-spot completion``: print a shell completion script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import shtab

SHELLS: Final = ("bash", "zsh")


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script for bash or zsh",
        epilog="bash: gpu-spot completion bash > ~/.local/share/bash-completion/completions/gpu-spot; zsh: "
        "save it as _gpu-spot in a directory of $fpath. Repeat after an update.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script, generated from the parsers of all commands."""
    sys.stdout.write(script(args.whole(), args.shell))
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a parser; the parser's help is unusable afterwards."""
    _prepare(root)
    return shtab.complete(root, shell)


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Complete file names for path options, and subcommands that have no help of their own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None
            for subparser in action.choices.values():
                _prepare(subparser)
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
