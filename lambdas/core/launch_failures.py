"""Classification of launch failures by their message: missing capacity, or a problem for operators.

Auto Scaling reports only text (``StatusMessage`` of a failed activity), usually with an EC2 error code; a
Spot request has a status code, a Spot Fleet a sub-type and a text. Sources: EC2 API reference, "Error codes";
EC2 user guide, "Spot request status", "Spot Fleet event types"; recorded messages in the tests.

Failures of a single pool and transient errors count as missing capacity: On-Demand capacity solves them.
"""

from __future__ import annotations

from typing import Final

from lambdas.core.model import LaunchFailureKind

LAUNCH_FAILURE_SECONDS: Final = 1800.0
"""Age up to which a launch failure predicts the next one. A group below its desired capacity retries about
every ten minutes (from published logs); a group at its desired capacity shows its last failure for weeks."""

_PHRASES: Final[dict[LaunchFailureKind, tuple[str, ...]]] = {
    LaunchFailureKind.LIMIT: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "spotInstanceCountLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "VolumeLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "AddressLimitExceeded",
    ),
    LaunchFailureKind.PERMISSION: (
        "UnauthorizedOperation",
        "iamFleetRoleInvalid",
        "AuthFailure",
        "AccessDenied",
        "OptInRequired",
        "Client.InternalError",  # the service-linked role has no access to the key of an encrypted volume
        "KMSKeyNotAccessible",
    ),
    LaunchFailureKind.CAPACITY: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "capacity-not-available",
        "capacity-oversubscribed",
        "price-too-low",
        "no Spot capacity",
        "do not have sufficient",
        # A type that is not offered in one zone: the group tries its other pools.
        "not supported in your requested Availability Zone",
        # Internal errors of AWS, and throttling of its internal calls.
        "Server.InternalError",
        "Server.SpotInstanceTermination",
        "RequestLimitExceeded",
        "Request limit exceeded",
    ),
}


def find_kind(message: str) -> LaunchFailureKind | None:
    """Return the kind of a launch failure, ``None`` for an unknown message."""
    text = message.casefold()
    matches = (kind for kind, phrases in _PHRASES.items() if any(p.casefold() in text for p in phrases))
    return next(matches, None)


def classify(message: str) -> LaunchFailureKind:
    """Return the kind of a launch failure; ``CONFIGURATION`` for an unknown message.

    An unknown failure raises an alarm and buys no On-Demand capacity.
    """
    return find_kind(message) or LaunchFailureKind.CONFIGURATION
