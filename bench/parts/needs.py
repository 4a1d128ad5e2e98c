"""What a benchmark needs beside Python: looked for before it begins, and named in its first line if lacking.

Without what it cannot do without it ends with code 2; what it can leave out it says that it leaves out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import broker
from tests.real import containers, environments

_TRACES: Final = "GPU_SPOT_TRACES"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _refuse(lacking: object) -> NoReturn:
    _say(str(lacking))
    raise SystemExit(2)


def traces_to_fit_on() -> Path:
    """Return the folder of real spot traces; without one this is the end."""
    root = os.environ.get(_TRACES)
    if not root or not Path(root).is_dir():
        _refuse(f"{_TRACES} is {root!r}, the folder of the traces to fit on is needed")
    return Path(root)


def traces_or_model() -> Path | None:
    """Return the folder of real spot traces, None where none is named: the fitted model is replayed."""
    root = os.environ.get(_TRACES)
    if root and not Path(root).is_dir():
        _refuse(f"{_TRACES} is {root!r}, a folder is needed (unset it to replay the fitted model)")
    _say(f"replaying {f'the traces in {_TRACES}' if root else f'the fitted model: {_TRACES} is not set'}")
    return Path(root) if root else None


def rabbitmq() -> None:
    """See that RabbitMQ is installed; without it this is the end."""
    try:
        broker.installed()
    except LocalCloudError as error:
        _refuse(error)


def frameworks(names: Iterable[str]) -> None:
    """Install the environments of ``tests/real`` that have these names; without one this is the end."""
    try:
        for name in names:
            environments.environment(name)
    except environments.NotInstalledError as error:
        _refuse(error)


def containers_or_none(*programs: str) -> None:
    """Say so where this machine cannot run containers with these programs."""
    try:
        containers.needed(*programs)
    except containers.LackingError as error:
        _say(f"containers are left out: {error}")
