"""A service's ``release`` parameter, written by Pulumi and read by the health checker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from contracts import codec
from contracts.group.release import WorkerRelease
from contracts.limits import AtLeast
from contracts.stored import FieldMark, stored

MAX_BYTES = 4096
"""Maximum size of a standard-tier parameter. Source: Systems Manager user guide, "Parameter tiers"."""
MAX_QUEUE_BYTES = 900
"""Maximum size of a queue in it: its name, and the name of a secret or a URL, with their keys."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class DesiredRelease:
    """The release in the stack file, and the workers per slot of the target."""

    release: Annotated[WorkerRelease, FieldMark.INLINE]
    per_slot: Annotated[int, AtLeast(1), FieldMark.REQUIRED] = 1


def dumps(desired: DesiredRelease) -> str:
    """Serialize the parameter's value."""
    return json.dumps(codec.dump(desired), sort_keys=True, separators=(",", ":"))


def parse(text: str) -> DesiredRelease:
    """Parse the parameter's value; raise `ContractError` if it is invalid."""
    return codec.parse_text(DesiredRelease, text)
