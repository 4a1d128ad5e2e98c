"""What a script needs: recorded Spot traces (``GPU_SPOT_TRACES``), frameworks; without them it says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from packages import environments

_TRACES: Final = "GPU_SPOT_TRACES"


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def refuse(lacking: object) -> NoReturn:
    """Print what is missing and exit with code 2."""
    say(str(lacking))
    raise SystemExit(2)


def traces_to_fit_on() -> Path:
    """Return the folder of real Spot traces; exit without one."""
    root = os.environ.get(_TRACES)
    if not root or not Path(root).is_dir():
        refuse(f"{_TRACES} must be the folder of the traces to fit on, not {root!r}")
    return Path(root)


def traces_or_model() -> Path | None:
    """Return the folder of real Spot traces, None if it is not set: then the fitted model is replayed."""
    root = os.environ.get(_TRACES)
    if root and not Path(root).is_dir():
        refuse(f"{_TRACES} must be a folder, not {root!r} (unset it to replay the fitted model)")
    say(f"replaying {f'the traces in {_TRACES}' if root else f'the fitted model: {_TRACES} is not set'}")
    return Path(root) if root else None


def frameworks(names: Iterable[str]) -> None:
    """Install these environments (``packages/locks``); exit if one cannot be installed."""
    try:
        for name in names:
            environments.environment(name)
    except environments.NotInstalledError as error:
        refuse(error)
