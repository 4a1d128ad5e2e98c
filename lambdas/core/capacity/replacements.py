"""The health checker's wishes as far as they are followed: it names instances, the controller ends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from contracts.group.control import Mode
from contracts.group.replacement_requests import Wish
from lambdas.core.capacity.memory import Memory
from lambdas.core.model import Group, Instance, Market, Observation, Side, slots

WISH_SECONDS: Final = 6 * 3600.0
"""A wish that is older is not followed: its writer has not looked since, or nothing can be done."""
_AHEAD_SECONDS: Final = 60.0
"""By so much the checker's clock may be ahead."""
SHARE: Final = 5
"""One in so many instances of a group is replaced within ``PACE_SECONDS``, one at the least."""


def sift(
    wishes: Iterable[Wish], group: Group, instances: Iterable[Instance], now: float
) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """Return the wishes that may be followed, the oldest first, and a line on those that are ignored.

    Ignored are wishes for instances that the group has not, or ends already; for an on-demand instance of the
    base, which is always kept; old ones; and all of a job, or of a group that people steer.
    """
    wishes = sorted(wishes, key=lambda wish: (wish.at, wish.instance))
    live = {i.id: i for i in instances if not i.given_up}
    bought = [i for i in live.values() if i.side is Side.PRIMARY and i.market is Market.ON_DEMAND]
    beyond_base = slots(bought) - group.base
    kept: list[Wish] = []
    ignored: dict[str, list[str]] = {}
    for wish in wishes:
        instance = live.get(wish.instance)
        if group.break_before_make:
            why = "of a job"
        elif group.control.mode in (Mode.MANUAL, Mode.PAUSED):
            why = f"in mode {group.control.mode}"
        elif instance is None:
            why = "not in the group"
        elif not now - WISH_SECONDS < wish.at <= now + _AHEAD_SECONDS:
            why = f"not of the last {WISH_SECONDS / 3600:.0f} hours"
        elif instance in bought and instance.slots > beyond_base:
            why = "of the on-demand base"
        else:
            beyond_base -= instance.slots if instance in bought else 0
            kept.append(wish)
            continue
        ignored.setdefault(why, []).append(wish.instance)
    told = "; ".join(f"{', '.join(ids[:3])}{' …' * (len(ids) > 3)} {why}" for why, ids in ignored.items())
    return tuple(kept), (f"wishes ignored: {told}",) if told else ()


def followed(observation: Observation, memory: Memory) -> Mapping[str, str]:
    """Return whom to replace now, with the verdict: no more than the group's share, and nobody twice."""
    if not observation.wishes:
        return {}
    live = {i.id: i for i in observation.instances if not i.given_up}
    left = max(1, len(live) // SHARE) - len(memory.replaced)
    going = memory.released.keys() | memory.doomed.keys()
    # What EC2 does not describe yet may be of another market than it seems.
    fit = [w for w in observation.wishes if w.instance not in going and live[w.instance].described]
    return {wish.instance: wish.reason for wish in fit[: max(0, left)]}
