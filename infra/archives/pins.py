"""Packages whose code is deployed, as installed here: the lock's versions and no others."""

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
    """Return a distribution that is installed in the version that ``lock`` pins.

    Another version would change what is deployed without a word of it in the sources. Raises
    ``pulumi.RunError`` for one that is missing or another.
    """
    wanted = _pins(lock)[name]
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise pulumi.RunError(
            f"package {name} is not installed, allowed: {wanted} of {lock.name} (run: make setup)"
        ) from None
    if found.version != wanted:
        raise pulumi.RunError(
            f"package {name} is {found.version} here, allowed: {wanted} of {lock.name} (run: make setup)"
        )
    return found


@cache
def _pins(lock: Path) -> Mapping[str, str]:
    return dict(_PIN.findall(lock.read_text("utf-8")))
