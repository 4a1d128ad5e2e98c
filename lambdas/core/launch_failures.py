"""Classification of launch failures by their message: missing capacity, or a problem for operators.

Auto Scaling reports only text (``StatusMessage`` of a failed activity), usually with an EC2 error code; a
Spot request has a status code, a Spot Fleet a sub-type and a text. Sources: EC2 API reference, "Error codes",
"StateReason", "EventInformation"; Auto Scaling user guide, "EC2 instance launch failures" and "AMI issues";
EC2 user guide, "Spot Fleet event types"; recorded messages in the tests; ``spot_request_status``.

Failures of a single pool and transient errors count as missing capacity: On-Demand capacity solves them. A
phrase is listed as a limit, a permission or configuration only if it cannot mean missing capacity: these
withhold On-Demand capacity.
"""

from __future__ import annotations

from typing import Final

from lambdas.core.model import LaunchFailureKind
from lambdas.core.spot_request_status import StatusClass, find_status

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
        "MaxIOPSLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "AddressLimitExceeded",
        # The same in words.
        "your current vCPU limit",
        "Max spot instance count exceeded",
        "instance(s) are already running",
    ),
    LaunchFailureKind.PERMISSION: (
        "UnauthorizedOperation",
        "iamFleetRoleInvalid",
        "AuthFailure",
        "AccessDenied",
        "OptInRequired",
        "You are not authorized",
        "not authorized to perform",
        "not subscribed to this service",
        "Client.InternalError",  # the service-linked role has no access to the key of an encrypted volume
        "KMSKeyNotAccessible",
    ),
    LaunchFailureKind.CAPACITY: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "ReservationCapacityExceeded",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "lower than the minimum required Spot",  # the price
        "no Spot capacity",
        "do not have sufficient",
        # A type that is not offered in one zone: the group tries its other pools.
        "not supported in your requested Availability Zone",
        "requested Availability Zone is no longer supported",
        # Internal errors of AWS, and throttling of its internal calls.
        "Server.InternalError",
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "RequestLimitExceeded",
        "Request limit exceeded",
    ),
    LaunchFailureKind.CONFIGURATION: (
        "InvalidAMIID",
        "InvalidBlockDeviceMapping",
        "InvalidGroup",
        "InvalidKeyPair",
        "InvalidLaunchTemplate",
        "InvalidParameter",
        "InvalidSecurity",
        "InvalidSnapshot",
        "InvalidSubnet",
        "InvalidUserData",
        "MissingParameter",
        # The same in words. Not "The requested configuration is currently not supported": AWS also says so of
        # a type that one zone does not offer.
        "does not exist",  # a security group, a key pair, an AMI
        "is pending, and cannot be run",  # an AMI
        "does not match the architecture",
        "Invalid device name",
        "for parameter virtualName is invalid",
        "EBS block device mappings not supported",
        "Invalid IAM Instance Profile",
        "Placement groups may not be used",
    ),
}

_KIND_BY_STATUS: Final[dict[StatusClass, LaunchFailureKind]] = {
    StatusClass.CAPACITY: LaunchFailureKind.CAPACITY,
    # The default maximum price is the On-Demand price.
    StatusClass.PRICE: LaunchFailureKind.CAPACITY,
    StatusClass.LIMIT: LaunchFailureKind.LIMIT,
    StatusClass.CONFIGURATION: LaunchFailureKind.CONFIGURATION,
    # The instance is missing for now, and there is nothing to fix.
    StatusClass.TRANSIENT: LaunchFailureKind.CAPACITY,
    StatusClass.NOT_A_FAILURE: LaunchFailureKind.CAPACITY,
}


def find_kind(message: str) -> LaunchFailureKind | None:
    """Return the kind of a launch failure, ``None`` for an unknown message."""
    text = message.casefold()
    matches = (kind for kind, phrases in _PHRASES.items() if any(p.casefold() in text for p in phrases))
    kind = next(matches, None)
    if kind is not None:
        return kind
    status = find_status(text)
    return None if status is None else _KIND_BY_STATUS[status.status_class]


def classify(message: str) -> LaunchFailureKind:
    """Return the kind of a launch failure; ``UNKNOWN`` for an unknown message.

    An unknown failure raises an alarm, and On-Demand capacity covers it within the maximum.
    """
    return find_kind(message) or LaunchFailureKind.UNKNOWN
