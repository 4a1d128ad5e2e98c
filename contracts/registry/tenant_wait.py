"""Tenants of a shared host that do not run as its list says: a part of the host's heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contracts.stored import stored

MAX_REASON_LENGTH: Final = 200
"""Characters of a reason: those of all tenants fit into one item of the worker registry."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class TenantWait:
    """A tenant whose container does not run as the list says, and why."""

    tenant: str
    reason: str

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a missing or long text."""
        if not self.tenant or not 0 < len(self.reason) <= MAX_REASON_LENGTH:
            raise ValueError(
                f"reason of tenant {self.tenant!r} must have 1 to {MAX_REASON_LENGTH} characters, not "
                f"{len(self.reason)}"
            )
