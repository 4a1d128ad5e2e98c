"""``gpu-spot completion``: what makes a shell complete the command's sub-commands, options and files."""

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
        help="print a script with which bash or zsh completes this command",
        epilog="bash: gpu-spot completion bash > ~/.local/share/bash-completion/completions/gpu-spot; zsh: a "
        "file _gpu-spot in a folder of $fpath. Anew after an update.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script, made from the parsers of all commands."""
    sys.stdout.write(script(args.whole(), args.shell))
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a whole command; its parser is no good for help afterwards."""
    _prepare(root)
    return shtab.complete(root, shell)


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Let files complete where paths are wanted, and commands that ``cli`` lists in panels of its own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None
            for each in action.choices.values():
                _prepare(each)
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
