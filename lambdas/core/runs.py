"""Which request of a job with a schedule becomes its next run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from contracts import names
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
    state: RunState,
    requests: Mapping[str, RunRequest],
    rules: RunRules,
    revision: str,
    now: float,
    *,
    is_ended: bool,
) -> RunState:
    """Return the state after ``requests``, by parameter; the same if nothing changes.

    The earliest comes first. During a run a request is dropped or waits, by ``overlap``: of those of a
    schedule only the newest is known, one of ``gpu-spot jobs run`` stays.
    """
    for parameter, request in sorted(requests.items(), key=lambda item: item[1].time):
        if state.is_considered(parameter, request) or future_error(request, now):
            continue
        is_missed = now - request.at > MISSED_SECONDS and request.time > state.waits
        is_known = state.request is not None and request.time == state.request.time  # its directory is taken
        considered = {
            **dict.fromkeys(names.RUN_REQUESTS, state.newest),
            **state.considered,
            parameter: request.time,
        }
        if not is_ended and rules.overlap == "wait" and not is_known:
            state = replace(state, waits=max(state.waits, request.time))
        elif is_known or not is_ended or (is_missed and rules.missed == "skip"):
            state = replace(state, dropped=max(state.dropped, request.time), considered=considered)
        else:
            return RunState(request, revision, now, dropped=state.dropped, considered=considered)
    return state
