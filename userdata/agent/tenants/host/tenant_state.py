"""What the supervisor of a shared host remembers of a tenant."""

from __future__ import annotations

from dataclasses import dataclass

from userdata.agent.machine.background import BackgroundPoller
from userdata.agent.work.notice import Notice


@dataclass
class TenantState:
    """The supervisor's state of a tenant."""

    work: BackgroundPoller[str] | None = None
    """The running background work for it, at most one at a time."""
    data_gib: int = 0
    """The size to which this process last brought its volume."""
    growth_error: str = ""
    """Why it has not this size yet; empty if it has."""
    grow_at: float = 0.0
    claim: frozenset[str] = frozenset()
    """The exclusive resources of the container that is being started."""
    failures: int = 0
    error: str = ""
    """The last failure since the container ran as planned."""
    retry_at: float = 0.0
    is_starting: bool = False
    is_clearing: bool = False
    container_id: str = ""
    """The container last started or seen running, since ``started_at``; empty after its end was observed."""
    started_at: float = 0.0
    has_served: bool = False
    restarts: int = 0
    notice: Notice | None = None
    remove_at: float | None = None
    """When its removal before the instance's end is next due; None before the first try."""
    is_removed: bool = False
