"""Checks of a benchmark's requirements besides Python, before it starts.

A missing requirement ends the benchmark with code 2; a missing optional one is reported, and its part
skipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.http import proxies
from rehearsal.machines.real import broker
from tests.real import containers, environments

_TRACES: Final = "GPU_SPOT_TRACES"


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def _refuse(lacking: object) -> NoReturn:
    say(str(lacking))
    raise SystemExit(2)


def traces_to_fit_on() -> Path:
    """Return the folder of real Spot traces; exit without one."""
    root = os.environ.get(_TRACES)
    if not root or not Path(root).is_dir():
        _refuse(f"{_TRACES} is {root!r}, the folder of the traces to fit on is needed")
    return Path(root)


def traces_or_model() -> Path | None:
    """Return the folder of real Spot traces, None if it is not set: then the fitted model is replayed."""
    root = os.environ.get(_TRACES)
    if root and not Path(root).is_dir():
        _refuse(f"{_TRACES} is {root!r}, a folder is needed (unset it to replay the fitted model)")
    say(f"replaying {f'the traces in {_TRACES}' if root else f'the fitted model: {_TRACES} is not set'}")
    return Path(root) if root else None


def rabbitmq() -> None:
    """Exit if RabbitMQ is not installed."""
    try:
        broker.installed()
    except LocalCloudError as error:
        _refuse(error)


def haproxy() -> None:
    """Exit if HAProxy is not installed."""
    try:
        proxies.installed()
    except LocalCloudError as error:
        _refuse(error)


def frameworks(names: Iterable[str]) -> None:
    """Install these environments of ``tests/real``; exit if one cannot be installed."""
    try:
        for name in names:
            environments.environment(name)
    except environments.NotInstalledError as error:
        _refuse(error)


def containers_or_none(*programs: str) -> None:
    """Print a message if this machine cannot run containers with these programs."""
    try:
        containers.needed(*programs)
    except containers.LackingError as error:
        say(f"containers are left out: {error}")
