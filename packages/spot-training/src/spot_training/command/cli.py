"""The command line of ``spot-training``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from spot_training.checkpointer import FOLDER_VARIABLE
from spot_training.command import contents
from spot_training.command.rehearse import rehearse
from spot_training.command.supervisor import Supervisor
from spot_training.errors import SpotTrainingError, one_line
from spot_training.notice import GRACE_SECONDS, Notice


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Errors are one line on standard error."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO)
    try:
        code: int = options.function(options)
    except (SpotTrainingError, OSError) as error:
        sys.stderr.write(f"spot-training: {one_line(error)}\n")
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spot-training", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    location = os.environ.get(FOLDER_VARIABLE) or "checkpoints"

    run = commands.add_parser("run", help="run a training; start it again when it fails; stop it at a notice")
    run.add_argument("--location", default=location, help="directory or URL of its checkpoints")
    run.add_argument("--restarts", type=int, default=5, help="failures in a row without a new checkpoint")
    run.add_argument("--grace", type=float, default=GRACE_SECONDS, help="seconds from SIGTERM to SIGKILL")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training")
    run.set_defaults(function=_run)

    drill = commands.add_parser(
        "rehearse", help="run a training for some steps, whole and interrupted; exit code 1 if they differ"
    )
    drill.add_argument("--steps", type=int, default=20, help="steps of a run")
    drill.add_argument("--seconds", type=float, default=1800.0, help="that a start may take")
    drill.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training")
    drill.set_defaults(function=_rehearse)

    for name, text in (
        ("ls", "list checkpoints"),
        ("verify", "read all files and compare their checksums; exit code 1 if one is damaged"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("location", nargs="?", default=location, help="directory or URL")
        command.set_defaults(function=_list, verifies=name == "verify")

    export = commands.add_parser("export", help="copy a verified checkpoint, or one part of a PyTorch one")
    export.add_argument("location", help="directory or URL")
    export.add_argument("destination", type=Path, help="a new directory; with --part a file")
    which = export.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, help="default: the newest whole one")
    which.add_argument("--best", action="store_true", help="the one with the best metric")
    which.add_argument("--pin", help="the one with this name")
    export.add_argument("--part", help="a part of Loop(...), for example model: its state_dict only")
    export.set_defaults(function=_export)

    return parser


def _command(options: argparse.Namespace) -> list[str]:
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise SpotTrainingError("no command is given; use spot-training run -- python train.py, or rehearse")
    return command


def _rehearse(options: argparse.Namespace) -> int:
    if options.steps < 4:
        raise SpotTrainingError(f"--steps must be 4 or more, not {options.steps}")
    return rehearse(_command(options), options.steps, options.seconds)


def _run(options: argparse.Namespace) -> int:
    command = _command(options)
    notice = Notice()
    signal.signal(signal.SIGINT, _as_sigterm)
    supervisor = Supervisor(
        command, options.location, notice, restarts=options.restarts, grace_seconds=options.grace
    )
    try:
        return supervisor.run()
    finally:
        notice.close()


def _as_sigterm(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the supervisor
    os.kill(os.getpid(), signal.SIGTERM)


def _list(options: argparse.Namespace) -> int:
    checkpoints = contents.read(options.location, verifies=options.verifies)
    for line in contents.table(checkpoints):
        sys.stdout.write(f"{line}\n")
    return int(options.verifies and (not checkpoints or any(entry.problem for entry in checkpoints)))


def _export(options: argparse.Namespace) -> int:
    step = options.step
    if options.best or options.pin is not None:
        step = contents.step_to_export(options.location, pin=options.pin)
    step = contents.export(options.location, options.destination, step=step, part=options.part)
    sys.stdout.write(f"step {step} exported to {options.destination}\n")
    return 0
