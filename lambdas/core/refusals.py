"""Tell refused launches apart by AWS's words: lack of capacity, or something that buying cannot mend.

Auto Scaling gives only text (``StatusMessage`` of a failed activity), which names an EC2 error code; a spot
request gives a status code. Sources: EC2 API reference, "Error codes"; EC2 user guide, "Spot request status".
"""

from __future__ import annotations

from typing import Final

from lambdas.core.model import RefusalKind

_CODES: Final[dict[RefusalKind, tuple[str, ...]]] = {
    RefusalKind.LIMIT: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "RequestLimitExceeded",
        "VolumeLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "AddressLimitExceeded",
    ),
    RefusalKind.PERMISSION: (
        "UnauthorizedOperation",
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
    ),
}


def classify(message: str) -> RefusalKind:
    """Return why a launch was refused.

    Text that names none of the known codes is ``CONFIGURATION``: an unknown refusal goes to people, it does
    not spend money.
    """
    text = message.casefold()
    for kind, codes in _CODES.items():
        if any(code.casefold() in text for code in codes):
            return kind
    return RefusalKind.CONFIGURATION
