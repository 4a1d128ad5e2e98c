"""Instance types without accelerators, for what is to be paid before any GPU is: read from their names.

AWS names a type by class, generation, options and size (EC2 user guide, "Instance type naming conventions");
an option ``g`` right after the generation is a Graviton processor. There are hundreds, so no list is kept:
EC2 refuses a name that it does not sell, and ``gpu-spot preflight`` asks before.
"""

from __future__ import annotations

import re
from typing import Final

from infra.catalogue.accelerators import Architecture

_NAME: Final = re.compile(
    r"(?P<class>[cmrt])(?P<generation>[0-9]{1,2})(?P<options>[a-z]*)(-flex)?"
    r"\.(small|medium|large|xlarge|[0-9]{1,3}xlarge)"
)
_ON_NITRO: Final = {"c": 5, "m": 5, "r": 5, "t": 3}
"""The first generations there (EC2 guide, "Nitro-based instances"): volumes show their serial numbers."""

ALLOWED: Final = "c5, m5, r5, t3 or younger, such as m7i.xlarge, not metal"


def architecture(name: str) -> Architecture:
    """Return the architecture of a type's processors.

    Raises:
        ValueError: no type of an allowed class and generation is called so.
    """
    found = _NAME.fullmatch(name)
    if found is None or int(found["generation"]) < _ON_NITRO[found["class"]]:
        raise ValueError(f"{name!r} is no CPU type that prepares datasets, allowed: {ALLOWED}")
    return "arm64" if found["options"].startswith("g") else "x86_64"
