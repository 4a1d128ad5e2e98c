"""The command-line interface ``gpu-spot``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpu_spot.renamed_options import replace_renamed_options
from pulumi_declared.errors import UserError

_PANELS: Final[Mapping[str, Sequence[str]]] = {
    "Observe a deployed stack": (
        *("deployed.status", "deployed.jobs", "deployed.tensorboard", "deployed.tenants"),
    ),
    "Change a deployed stack": ("deployed.release_budget",),
    "Test a deployed stack": ("deployed.drill",),
    "Rehearse locally, without AWS": (
        *("rehearsed.demo", "rehearsed.deploy", "market.replay", "market.replay_deadline"),
    ),
    "Plan a change": (
        *(
            "preflight",
            "market.forecast",
            "market.advise",
            "market.prices",
            "review",
            "pin_images",
            "aws_check",
        ),
    ),
    "Editor and shell integration": ("schema", "completion"),
}
"""Modules of ``gpu_spot/commands/`` by help panel; a command is the module's name with ``-`` for ``_``."""

_TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status that shells report for a process ended by SIGTERM."""


class _Commands:
    """An ``argparse`` sub-parsers object that collects one-line summaries for the help panels."""

    def __init__(self, commands: Any) -> None:
        self._commands = commands
        self.summaries: dict[str, str] = {}

    def add_parser(self, name: str, **more: Any) -> argparse.ArgumentParser:
        """Add a parser. ``help`` is the summary in the list and the default description."""
        self.summaries[name] = more["help"]
        parser: argparse.ArgumentParser = self._commands.add_parser(
            name, **{"description": f"{self.summaries[name]}.", **more}
        )
        return parser


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of ``gpu-spot``; each command's module adds its own part.

    If ``command`` names a command, only its module is imported.
    """
    root = argparse.ArgumentParser(
        prog="gpu-spot",
        usage="%(prog)s [-h] COMMAND ...",
        description="Run deep learning workloads on EC2 Spot GPU instances.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = _Commands(
        root.add_subparsers(prog="gpu-spot", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    )
    modules = {_name(module): module for panel in _PANELS.values() for module in panel}
    for name in (command,) if command in modules else modules:
        importlib.import_module(f"gpu_spot.commands.{modules[name]}").add_parser(commands)
    root.epilog = _listed(commands.summaries)
    root.set_defaults(whole=parser)  # for docs/options.md and shell completion
    return root


def _name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _listed(summaries: Mapping[str, str]) -> str:
    width = max(map(len, summaries))
    panels = []
    for title, modules in _PANELS.items():
        lines = [f"  {name:{width}}  {summaries[name]}" for name in map(_name, modules) if name in summaries]
        panels.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join([*panels, "Use gpu-spot COMMAND --help for the options of a command."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 1 for an error that the user can fix (one line), 2 for wrong usage."""
    words = replace_renamed_options(sys.argv[1:] if arguments is None else arguments)
    args = parser(words[0] if words else None).parse_args(words)
    # SIGTERM must run `finally` blocks, which stop the processes that a command started.
    previous_handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        code: int = args.run(args)
    except (UserError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
    return code
