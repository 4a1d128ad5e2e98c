"""Lookup of installed packages whose code is deployed, in the versions of the lock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import pulumi

_LOCK: Final = Path(__file__).resolve().parents[2] / "requirements.lock"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.M)


def installed(name: str, lock: Path = _LOCK) -> Distribution:
    """Return the installed distribution ``name``.

    Raises:
        pulumi.RunError: it is not installed in the version that ``lock`` pins. Another version would change
            the deployed code without a change of the sources.
    """
    pinned = _pins(lock)[name]
    try:
        package = distribution(name)
    except PackageNotFoundError:
        raise pulumi.RunError(
            f"package {name} is not installed, but {lock.name} pins {pinned}; run: make setup"
        ) from None
    if package.version != pinned:
        raise pulumi.RunError(
            f"package {name} has version {package.version}, but {lock.name} pins {pinned}; run: make setup"
        )
    return package


@cache
def _pins(lock: Path) -> Mapping[str, str]:
    return dict(_PIN.findall(lock.read_text("utf-8")))
