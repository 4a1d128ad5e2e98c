"""Which request of a job with a schedule becomes its next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contracts.group.config import RunRules
from contracts.jobs.run import RunRequest, RunState

MISSED_SECONDS: Final = 900.0
"""A request that is older when it could start a run was missed: nothing could start it in time."""
MAX_CLOCK_ERROR_SECONDS: Final = 300.0
"""A request that is further in the future is not valid: it would hide all requests until then."""


def future_error(request: RunRequest, now: float) -> str:
    """Return why a request is too early; empty if it is not."""
    seconds = request.at - now
    if seconds <= MAX_CLOCK_ERROR_SECONDS:
        return ""
    return f"time {request.time} is {seconds / 60:,.0f} minutes from now; it must not be in the future"


def next_state(
    state: RunState, request: RunRequest | None, rules: RunRules, revision: str, now: float, *, is_ended: bool
) -> RunState:
    """Return the state after a request, the same if nothing changes.

    During a run a request is dropped or waits, by ``overlap``. Of several that wait only the newest is known.
    """
    if request is None or request.time <= state.considered or future_error(request, now):
        return state
    if not is_ended:
        waits = rules.overlap == "wait"
        return replace(state, waits=request.time) if waits else replace(state, dropped=request.time)
    is_missed = now - request.at > MISSED_SECONDS and state.waits != request.time
    if is_missed and rules.missed == "skip":
        return replace(state, dropped=request.time)
    return RunState(request, revision, now, dropped=state.dropped)
