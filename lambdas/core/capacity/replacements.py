"""Selection of the health checker's replacement requests that the controller carries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.capacity.memory import Memory
from lambdas.core.model import Group, GroupRole, Instance, Observation, PurchaseOption, slots

REQUEST_SECONDS: Final = 6 * 3600.0
"""Maximum age of a request; an older one is ignored: the health checker no longer runs, or cannot help."""
_MAX_CLOCK_SKEW_SECONDS: Final = 60.0
"""How far the health checker's clock may be ahead."""
REPLACEMENT_DIVISOR: Final = 5
"""One instance in this many may be replaced within ``REPLACEMENT_WINDOW_SECONDS``, but at least one."""

OUTSIDE_ZONES: Final = "outside-zones"
"""Verdict of the controller itself on an instance in a zone that the group no longer has."""


def with_removed_zones(observation: Observation, now: float) -> Observation:
    """Return the observation with a request to replace each instance outside the group's zones.

    AWS moves none of them while AZRebalance is suspended, and deletes no subnet that has one. Sources: Auto
    Scaling user guide, "Considerations for suspending processes"; EC2 API reference, ``DeleteSubnet``.
    """
    group, requests = observation.group, observation.replacement_requests
    if not group.config.zones or group.control.mode is Mode.MANUAL:
        return observation
    requested = {request.instance for request in requests}
    outside = [
        ReplacementRequest(i.id, int(now), OUTSIDE_ZONES)
        for i in observation.instances
        if i.is_described and not i.is_terminating and i.id not in requested
        if i.pool.zone and i.pool.zone not in group.config.zones
    ]
    return replace(observation, replacement_requests=(*requests, *outside)) if outside else observation


def filter_requests(
    requests: Iterable[ReplacementRequest], group: Group, instances: Iterable[Instance], now: float
) -> tuple[tuple[ReplacementRequest, ...], tuple[str, ...]]:
    """Return the accepted requests, the oldest first, and a line about those that are ignored.

    Requests are ignored for unknown and terminating instances, for the On-Demand base, which is always kept,
    for jobs, and in the modes manual and paused; so are requests that are too old.
    """
    requests = sorted(requests, key=lambda request: (request.requested_at, request.instance))
    live = {i.id: i for i in instances if not i.is_terminating}
    on_demand = [
        i
        for i in live.values()
        if i.group_role is GroupRole.PRIMARY and i.purchase_option is PurchaseOption.ON_DEMAND
    ]
    beyond_base = slots(on_demand) - group.config.base
    accepted: list[ReplacementRequest] = []
    ignored: dict[str, list[str]] = {}
    for request in requests:
        instance = live.get(request.instance)
        if group.config.break_before_make:
            reason = "training job"
        elif group.control.mode in (Mode.MANUAL, Mode.PAUSED):
            reason = f"mode {group.control.mode}"
        elif instance is None:
            reason = "not in the group"
        elif not now - REQUEST_SECONDS < request.requested_at <= now + _MAX_CLOCK_SKEW_SECONDS:
            reason = f"not from the last {REQUEST_SECONDS / 3600:.0f} hours"
        elif instance in on_demand and instance.slots > beyond_base:
            reason = "on-demand base"
        else:
            beyond_base -= instance.slots if instance in on_demand else 0
            accepted.append(request)
            continue
        ignored.setdefault(reason, []).append(request.instance)
    summary = "; ".join(
        f"{', '.join(ids[:3])}{' …' * (len(ids) > 3)} ({reason})" for reason, ids in ignored.items()
    )
    return tuple(accepted), (f"replacement requests ignored: {summary}",) if summary else ()


def select_replacements(observation: Observation, memory: Memory) -> Mapping[str, str]:
    """Return the instances to replace now, with the verdict: at most the group's share at once."""
    if not observation.replacement_requests:
        return {}
    live = {i.id: i for i in observation.instances if not i.is_terminating}
    allowed = max(1, len(live) // REPLACEMENT_DIVISOR) - len(memory.replacement_times)
    terminating = memory.termination_requests.keys() | memory.termination_deadlines.keys()
    # The purchase option of an instance that EC2 does not describe yet is a guess.
    eligible = [
        request
        for request in observation.replacement_requests
        if request.instance not in terminating and live[request.instance].is_described
    ]
    return {request.instance: request.reason for request in eligible[: max(0, allowed)]}
