"""Times of moto's responses, read as the one format that moto writes instead of as any."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from botocore import utils

from pulumi_on_moto.fixes.fix import Patch

_WRITTEN: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(\d{3}|\d{6}))?Z", re.ASCII)
_PARSE: Final = "_parse_timestamp_with_tzinfo"
_parse = getattr(utils, _PARSE)


def _parsed(value: Any, tzinfo: Any) -> datetime:
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        return datetime.fromisoformat(value[:-1]).replace(tzinfo=UTC)
    parsed: datetime = _parse(value, tzinfo)
    return parsed


TIMESTAMPS: Final[Patch] = (utils, _PARSE, _parsed)
