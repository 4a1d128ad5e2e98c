"""The command ``gpu-spot``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Final

from gpu_spot.market.supply.trace import TraceError
from pulumi_on_moto.errors import LocalCloudError

_COMMANDS: Final = (
    "gpu_spot.commands.aws_check",
    "gpu_spot.commands.demo",
    "gpu_spot.commands.deploy",
    "gpu_spot.commands.jobs",
    "gpu_spot.commands.pin_images",
    "gpu_spot.commands.preflight",
    "gpu_spot.commands.replay",
    "gpu_spot.commands.replay_deadline",
    "gpu_spot.commands.tensorboard",
)

_TERMINATED: Final = 128 + signal.SIGTERM
"""The exit status that a shell gives to who was ended by SIGTERM."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command; each sub-command's module adds its own part."""
    root = argparse.ArgumentParser(
        prog="gpu-spot", description="Deep learning on the cheapest GPUs that AWS will sell this minute."
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        importlib.import_module(module).add_parser(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what a user can mend is told in one line, exit status 1 (2: wrong usage)."""
    args = parser().parse_args(arguments)
    # What a command has started ends with it, however it is told to end.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        code: int = args.run(args)
    except (LocalCloudError, TraceError, ValueError, OSError) as error:
        sys.stderr.write(f"gpu-spot: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return code
