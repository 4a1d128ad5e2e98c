"""The command-line interface ``gpu-spot``."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from contracts.sentences import ended
from gpu_spot.errors import ExitStatus, UserError, aws_error, is_of_aws, unexpected

_PANELS: Final[Mapping[str, Sequence[str]]] = {
    "Observe a deployed stack": ("status", "jobs", "tensorboard"),
    "Test a deployed stack": ("drill",),
    "Plan a change": (*("preflight", "forecast", "review", "pin_images"),),
    "Begin": ("new",),
    "Editor and shell integration": ("schema", "completion"),
}
"""Modules of ``gpu_spot/commands/`` by help panel; a command is the module's name with ``-`` for ``_``."""

_PLUG_INS: Final = "gpu_spot.commands"
"""Group of entry points of other packages: a command's name, and a function like ``add_parser`` here."""
_PLUG_IN_PANEL: Final = "Of other installed packages"

_TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status that shells report for a process ended by SIGTERM."""
_INTERRUPTED: Final = 128 + signal.SIGINT


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


class _ShowVersion(argparse.Action):
    """Prints the version of the installed package; its metadata is read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        sys.stdout.write(f"gpu-spot {importlib.metadata.version('gpu-spot')}\n")
        parser.exit()


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of ``gpu-spot``; each command's module adds its own part.

    If ``command`` names a command, only its module is imported.
    Commands of other packages are found by entry points.
    """
    root = argparse.ArgumentParser(
        prog="gpu-spot",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Run deep learning workloads on EC2 Spot GPU instances.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version and exit")
    commands = _Commands(
        root.add_subparsers(prog="gpu-spot", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    )
    modules = {_name(module): module for panel in _PANELS.values() for module in panel}
    plug_ins = {} if command in modules else _plug_ins()
    for name in (command,) if command in modules or command in plug_ins else (*modules, *plug_ins):
        if name in modules:
            importlib.import_module(f"gpu_spot.commands.{modules[name]}").add_parser(commands)
        else:
            plug_ins[name].load()(commands)
    root.epilog = _listed(commands.summaries)
    root.set_defaults(whole=parser)  # for docs/options.md and shell completion
    return root


def _plug_ins() -> dict[str, EntryPoint]:
    return {
        entry.name: entry for entry in sorted(entry_points(group=_PLUG_INS), key=lambda entry: entry.name)
    }


def _name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _listed(summaries: Mapping[str, str]) -> str:
    width = max(map(len, summaries))
    names = {title: [*map(_name, modules)] for title, modules in _PANELS.items()}
    built_in = {name for listed in names.values() for name in listed}
    names[_PLUG_IN_PANEL] = [name for name in summaries if name not in built_in]
    panels = []
    for title, listed in names.items():
        lines = [f"  {name:{width}}  {summaries[name]}" for name in listed if name in summaries]
        panels += ["\n".join([f"{title}:", *lines])] if listed else []
    return "\n\n".join([*panels, "Use gpu-spot COMMAND --help for the options of a command."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its `ExitStatus`. An error is one line on stderr, with ``--json`` also JSON."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    args = parser(words[0] if words else None).parse_args(words)
    # SIGTERM must run `finally` blocks, which stop the processes that a command started.
    previous_handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        return _report(error, as_json=getattr(args, "json", False) is True)
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
    return code


def _report(error: Exception, *, as_json: bool) -> ExitStatus:
    if is_of_aws(error):
        error = aws_error("AWS", error)
    is_foreseen = isinstance(error, UserError | ValueError | OSError)
    message = ended(str(error) if is_foreseen else unexpected(error))
    of_others = ExitStatus.INPUT if is_foreseen else ExitStatus.BUG
    status = error.status if isinstance(error, UserError) else of_others
    if as_json:
        document = {"error": {"status": int(status), "kind": status.name.lower(), "message": message}}
        sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stderr.write(f"gpu-spot: {message}\n")
    return status
