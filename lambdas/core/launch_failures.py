"""Tell refused launches apart by AWS's words: lack of capacity, or something that buying cannot mend.

Auto Scaling gives only text (``StatusMessage`` of a failed activity), which mostly names an EC2 error code;
a spot request gives a status code, a fleet a sub-type and a text. Sources: EC2 API reference, "Error codes";
EC2 user guide, "Spot request status", "Spot Fleet event types"; recorded texts in the tests.

What is about one pool, or passes by itself, counts like lack of capacity: on-demand mends it.
"""

from __future__ import annotations

from typing import Final

from lambdas.core.model import RefusalKind

REFUSAL_SECONDS: Final = 1800.0
"""How long a refused launch says that the next would be refused. A group that lacks instances tries again
about every ten minutes (from others' logs); one that lacks none keeps its last refusal for weeks."""

_WORDS: Final[dict[RefusalKind, tuple[str, ...]]] = {
    RefusalKind.LIMIT: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "spotInstanceCountLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "VolumeLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "AddressLimitExceeded",
    ),
    RefusalKind.PERMISSION: (
        "UnauthorizedOperation",
        "iamFleetRoleInvalid",
        "AuthFailure",
        "AccessDenied",
        "OptInRequired",
        "Client.InternalError",  # the service-linked role may not use the key of an encrypted volume
        "KMSKeyNotAccessible",
    ),
    RefusalKind.CAPACITY: (
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
        # One type that one zone does not sell: the group tries the other pools.
        "not supported in your requested Availability Zone",
        # AWS's own trouble, and calls of its own that were throttled.
        "Server.InternalError",
        "Server.SpotInstanceTermination",
        "RequestLimitExceeded",
        "Request limit exceeded",
    ),
}


def known(message: str) -> RefusalKind | None:
    """Return why a launch was refused, ``None`` for words that AWS has not been heard to use for it."""
    text = message.casefold()
    return next((kind for kind, words in _WORDS.items() if any(w.casefold() in text for w in words)), None)


def classify(message: str) -> RefusalKind:
    """Return why a launch was refused; unknown words are ``CONFIGURATION``.

    An unknown refusal goes to people, it does not spend money.
    """
    return known(message) or RefusalKind.CONFIGURATION
