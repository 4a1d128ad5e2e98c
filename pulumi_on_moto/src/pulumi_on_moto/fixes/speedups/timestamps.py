"""botocore parses the same timestamps again and again; this remembers them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from botocore import parsers

from pulumi_on_moto.fixes.fix import Patch

TIMESTAMPS: Final[Patch] = (
    parsers,
    "DEFAULT_TIMESTAMP_PARSER",
    lru_cache(4096)(parsers.DEFAULT_TIMESTAMP_PARSER),
)
