"""Instance types without accelerators, recognized by their names.

A name has class, generation, options and size; an option ``g`` right after the generation is a Graviton
processor. There are hundreds of types, so there is no list: EC2 rejects unknown names, and
``gpu-spot preflight`` checks them before.

Source: EC2 user guide, "Instance type naming conventions".
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
"""First generation on Nitro by class; volumes have serial numbers there.

Source: EC2 user guide, "Nitro-based instances".
"""

ALLOWED: Final = "c5, m5, r5, t3 or newer, such as m7i.xlarge, not metal"


def architecture(name: str) -> Architecture:
    """Return the architecture of a type's processors.

    Raises:
        ValueError: the name is not that of a type of an allowed class and generation.
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match["generation"]) < _ON_NITRO[match["class"]]:
        raise ValueError(f"{name!r} is not a supported CPU type; use {ALLOWED}")
    return "arm64" if match["options"].startswith("g") else "x86_64"
