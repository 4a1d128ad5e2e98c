"""A service's ``health`` parameter: the program writes it, the health checker reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.limits import WholeNumber, Within
from contracts.stored import FieldMark, stored

GRACE_SECONDS: Final = 900
STUCK_SECONDS: Final = 900
MOST_AT_ONCE: Final = 20
DIGEST_HOUR: Final = 7
NO_DIGEST: Final = -1


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HealthSettings:
    """What people may set.

    An instance may take ``grace_seconds`` after its launch until its workers report, or twice the learned
    boot time if that is longer. A worker that finishes nothing for ``stuck_seconds`` while requests wait,
    or the others finish ten each, is stuck: longer than the longest request. Of all instances at most
    ``most_at_once`` percent, and one at least, are restarted or replaced at the same time, and twice as
    many in an hour. The daily message goes out at ``digest`` o'clock UTC, `NO_DIGEST` for none.
    """

    grace_seconds: Annotated[WholeNumber, FieldMark.REQUIRED] = GRACE_SECONDS
    stuck_seconds: Annotated[WholeNumber, FieldMark.REQUIRED] = STUCK_SECONDS
    most_at_once: Annotated[int, Within(0, 100), FieldMark.REQUIRED] = MOST_AT_ONCE
    digest: Annotated[int, Within(NO_DIGEST, 23), FieldMark.REQUIRED] = DIGEST_HOUR


def dumps(settings: HealthSettings) -> str:
    """Return the parameter's text."""
    return json.dumps(codec.dump(settings))


def parse(text: str) -> HealthSettings:
    """Read the parameter's text; raise `ContractError` for what the program does not write."""
    return codec.parse_text(HealthSettings, text)
