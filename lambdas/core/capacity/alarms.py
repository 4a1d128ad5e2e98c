"""What people must hear of a group: causes that more capacity cannot mend."""

from __future__ import annotations

from typing import Final

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.memory import LONGEST_BOOT
from lambdas.core.model import Alarm, Observation, RefusalKind, Side, ids

_SILENT: Final = "silent"
_SUSPENDED: Final = "suspended"


def alarms(observation: Observation, situation: Situation) -> tuple[tuple[Alarm, ...], frozenset[str]]:
    """Return what people must hear now, and all that they have then heard. A spot shortage is no alarm."""
    heard = situation.memory.alarmed
    # What was known of a side is not mended for not being read.
    known = {cause for cause in heard if any(cause.startswith(side) for side in observation.unread)}
    causes: dict[str, Alarm] = {}
    for side in Side:
        refusal = observation.refusal(side)
        if refusal is not None and (side is Side.FALLBACK or refusal.kind is not RefusalKind.CAPACITY):
            causes[f"{side}:{refusal.kind}"] = Alarm(f"{side}-{refusal.kind}", refusal.message)
        if processes := observation.suspended.get(side):
            told = f"suspended, until somebody resumes them: {', '.join(sorted(processes))}"
            causes[f"{_SUSPENDED}:{side}"] = Alarm(f"{side}-{_SUSPENDED}", told)
    if situation.silent:
        names = ", ".join(ids(situation.silent))
        held = "" if situation.mute else ", most of the group or all of it: nobody is replaced for it"
        told = f"no worker reports for {LONGEST_BOOT / 60:.0f} minutes: {names}{held}"
        causes[_SILENT] = Alarm(_SILENT, told)
    new = tuple(alarm for cause, alarm in causes.items() if cause not in heard)
    return new, frozenset(known | causes.keys())
