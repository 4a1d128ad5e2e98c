"""The command ``gpu-spot``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi_declared.errors import UserError

_PANELS: Final[Mapping[str, Sequence[str]]] = {
    "See what a deployed stack does": ("deployed.status", "deployed.jobs", "deployed.tensorboard"),
    "Try it on a deployed stack": ("deployed.drill",),
    "Rehearse on this machine, without AWS": (
        *("rehearsed.demo", "rehearsed.deploy", "market.replay", "market.replay_deadline"),
    ),
    "Before a change": (
        *("preflight", "market.forecast", "market.advise", "review", "pin_images", "aws_check"),
    ),
    "For your editor and shell": ("schema", "completion"),
}
"""Modules in ``gpu_spot/commands/``; each has the last part of its name, with ``-`` for ``_``."""

_TERMINATED: Final = 128 + signal.SIGTERM
"""The exit status that a shell gives to who was ended by SIGTERM."""


class _Commands:
    """What a command's module adds its parser to: as ``argparse`` has it, but listed in panels."""

    def __init__(self, commands: Any) -> None:
        self._commands = commands
        self.told: dict[str, str] = {}

    def add_parser(self, name: str, **more: Any) -> argparse.ArgumentParser:
        """See ``argparse``; ``help`` is one line for the list, and the description where none is given."""
        self.told[name] = more["help"]
        made: argparse.ArgumentParser = self._commands.add_parser(
            name, **{"description": f"{self.told[name]}.", **more}
        )
        return made


def parser(named: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command; each sub-command's module adds its own part.

    Where ``named`` is a sub-command, only its module is imported and added.
    """
    root = argparse.ArgumentParser(
        prog="gpu-spot",
        usage="%(prog)s [-h] COMMAND ...",
        description="Deep learning on the cheapest GPUs that AWS will sell this minute.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = _Commands(
        root.add_subparsers(prog="gpu-spot", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    )
    modules = {_name(module): module for panel in _PANELS.values() for module in panel}
    for name in (named,) if named in modules else modules:
        importlib.import_module(f"gpu_spot.commands.{modules[name]}").add_parser(commands)
    root.epilog = _listed(commands.told)
    root.set_defaults(whole=parser)  # for the page of all options, and for shells
    return root


def _name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _listed(told: Mapping[str, str]) -> str:
    width = max(map(len, told))
    panels = []
    for title, modules in _PANELS.items():
        lines = [f"  {name:{width}}  {told[name]}" for name in map(_name, modules) if name in told]
        panels.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join([*panels, "gpu-spot COMMAND --help tells the options of one."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what a user can mend is told in one line, exit status 1 (2: wrong usage)."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    args = parser(words[0] if words else None).parse_args(words)
    # What a command has started ends with it, however it is told to end.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        code: int = args.run(args)
    except (UserError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return code
