"""What a client says of itself: its parts are the same in each request, and made letter by letter."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from botocore import useragent

from pulumi_on_moto.fixes.fix import Patch

USER_AGENT: Final[Patch] = (
    useragent,
    "sanitize_user_agent_string_component",
    lru_cache(1024)(useragent.sanitize_user_agent_string_component),
)
