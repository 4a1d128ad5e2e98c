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

from dataclasses import dataclass
from typing import Final

from lambdas.core.model import LaunchFailureKind
from lambdas.core.spot_request_status import StatusClass, find_status

LAUNCH_FAILURE_SECONDS: Final = 1800.0
"""Age up to which a launch failure says that a pool lacks capacity. A group below its desired capacity
retries about every ten minutes at first (from published logs)."""


@dataclass(frozen=True, slots=True)
class FailureCause:
    """A cause of failed launches: its codes in the EC2 API, and the words that Auto Scaling has for it."""

    kind: LaunchFailureKind
    codes: tuple[str, ...]
    words: tuple[str, ...] = ()


_SPOT_LIMIT, _LIMIT = LaunchFailureKind.SPOT_LIMIT, LaunchFailureKind.LIMIT
_PERMISSION, _CAPACITY = LaunchFailureKind.PERMISSION, LaunchFailureKind.CAPACITY
_CONFIGURATION: Final = LaunchFailureKind.CONFIGURATION

CAUSES: Final = (
    # Quotas of Spot alone.
    FailureCause(
        _SPOT_LIMIT,
        (
            "MaxSpotInstanceCountExceeded",
            "spotInstanceCountLimitExceeded",
            "SpotInstanceRequestLimitExceeded",
        ),
        ("Max spot instance count exceeded", "limit on the number of Spot Instances"),
    ),
    FailureCause(
        _SPOT_LIMIT,
        ("MaxSpotFleetRequestCountExceeded",),
        ("quota for maximum Spot Fleet Requests", "total number of Spot Fleet requests"),
    ),
    FailureCause(_LIMIT, ("MaxFleetCountExceeded",), ("quota for maximum Fleet Requests",)),
    FailureCause(
        _LIMIT,
        ("VcpuLimitExceeded",),
        ("your current vCPU limit", "limit on the number of vCPUs", "vCPU bucket limit"),
    ),
    FailureCause(
        _LIMIT,
        ("InstanceLimitExceeded", "ResourceLimitExceeded", "TargetCapacityLimitExceeded"),
        (
            *("your current instance limit", "quota allows for", "instance(s) are already running"),
            *("limit on the number of instances", "pending verification"),
        ),
    ),
    FailureCause(
        _LIMIT,
        ("VolumeLimitExceeded", "MaxIOPSLimitExceeded", "SnapshotLimitExceeded", "AttachmentLimitExceeded"),
        (
            *("limit on your Amazon EBS", "limit on your IOPS", "maximum allowed volume"),
            *("exceed your account's current volume", "exceeded your maximum gp", "Volume limit exceeded"),
        ),
    ),
    FailureCause(
        _LIMIT,
        ("NetworkInterfaceLimitExceeded", "AddressLimitExceeded", "PrivateIpAddressLimitExceeded"),
        (
            *("limit on the number of network interfaces", "maximum number of network interfaces"),
            *("limit on the number of Elastic IP", "maximum number of addresses has been reached"),
        ),
    ),
    FailureCause(_LIMIT, ("PlacementGroupLimitExceeded",), ("limit on the number of placement groups",)),
    FailureCause(
        _PERMISSION,
        ("UnauthorizedOperation", "iamFleetRoleInvalid", "AuthFailure", "AccessDenied", "Blocked"),
        (
            *("You are not authorized", "Not authorized for images", "not authorized to perform"),
            *("Authentication Failure", "required permissions either to launch", "Access denied"),
            *("account is currently blocked", "Not authorized for", "does not have the required permissions"),
        ),
    ),
    FailureCause(
        _PERMISSION,
        ("OptInRequired", "PendingVerification", "SubscriptionRequired"),
        (
            "need to accept terms and subscribe",
            "not subscribed to this service",
            *("account needs to be validated", "account is currently being verified"),
        ),
    ),
    FailureCause(
        _PERMISSION,
        # The service-linked role has no access to the key of an encrypted volume.
        (
            "Client.InternalError",
            "KMSKeyNotAccessible",
            "InvalidKMSKey",
            "Client.InvalidKMSKey",
            "KmsKeyDisabled",
        ),
        (
            "KMS key provided is in an incorrect state",
            "KMS key is not accessible",
            "key ID is not accessible",
        ),
    ),
    # One subnet of the group: the other zones can launch.
    FailureCause(
        _CAPACITY,
        ("InsufficientFreeAddressesInSubnet",),
        ("not enough free addresses in", "insufficient free addresses", "Insufficient free IP addresses"),
    ),
    FailureCause(
        _CAPACITY,
        (
            *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"),
            *("InsufficientReservedInstanceCapacity", "InsufficientReservedInstancesCapacity"),
            *("ReservationCapacityExceeded", "UnfulfillableCapacity", "InsufficientCapacityOnHost"),
        ),
        (
            *("no Spot capacity", "do not have sufficient", "does not have sufficient compatible"),
            *("Unable to fulfill capacity", "Insufficient capacity", "not enough capacity to fulfill"),
            "Capacity Block reservation",  # it is not active yet
        ),
    ),
    FailureCause(_CAPACITY, ("SpotMaxPriceTooLow",), ("lower than the minimum required Spot",)),  # the price
    # A type that is not offered in one zone: the group tries its other pools.
    FailureCause(
        _CAPACITY,
        (),
        (
            "not supported in your requested Availability Zone",
            "requested Availability Zone is no longer supported",
            "requested Availability Zone is currently constrained",
        ),
    ),
    # Internal errors of AWS, and throttling of its internal calls.
    FailureCause(
        _CAPACITY,
        (
            *("Server.InternalError", "Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"),
            *("Server.InsufficientInstanceCapacity", "RequestLimitExceeded", "ServiceUnavailable"),
            *("InternalFailure", "Server.Unavailable", "InternalError"),
        ),
        ("Request limit exceeded", "internal error has occurred", "Service Unavailable", "Rate exceeded"),
    ),
    # Not "The requested configuration is currently not supported": AWS also says so of a type that one zone
    # does not offer.
    FailureCause(
        _CONFIGURATION,
        ("InvalidAMIID", "InvalidAMI"),
        (
            *("does not exist", "is pending, and cannot be run", "does not match the architecture"),  # an AMI
            *("is not a valid image", "AMI is not available"),
        ),
    ),
    FailureCause(
        _CONFIGURATION,
        ("InvalidBlockDeviceMapping", "InvalidSnapshot", "InvalidVolume", "UnknownVolumeType"),
        (
            *(
                "Invalid device name",
                "for parameter virtualName is invalid",
                "is not a valid EBS device name",
            ),
            *(
                "EBS block device mappings not supported",
                "smaller than snapshot",
                "Throughput (MiBps) to iops",
            ),
            *("Iops to volume size ratio", "Throughput to iops ratio"),
        ),
    ),
    FailureCause(
        _CONFIGURATION,
        (
            *("InvalidGroup", "InvalidKeyPair", "InvalidLaunchTemplate", "InvalidSecurity", "InvalidSubnet"),
            *("InvalidUserData", "InvalidTagKey", "InvalidNetworkInterface", "InvalidZone", "InvalidVpcID"),
            *("InvalidCapacityReservationId", "InvalidPlacementGroup", "InvalidIamInstanceProfile"),
        ),
        (
            *(
                "Invalid IAM Instance Profile",
                "Invalid IamInstanceProfile",
                "tag key is not valid",
                "Invalid tag key",
            ),
            *(
                "belong to different networks",
                "fully-formed launch template",
                "Placement groups may not be used",
            ),
            # A placement group.
            *("has already been used in another Availability Zone", "is in use in another Availability Zone"),
            *("placement group is spread across", "are not linked to the VPCs"),
        ),
    ),
    FailureCause(
        _CONFIGURATION,
        (
            "InvalidParameter",
            "MissingParameter",
            "InvalidInput",
            "InvalidRequest",
            "InvalidSpotFleetRequestConfig",
        ),
        (
            *("not eligible for Free Tier", "Invalid value", "is invalid. Expected", "User data is limited"),
            *("instance configuration for this AWS Marketplace product is not supported", "Invalid base64"),
            *(
                "does not support ENA",
                "Enhanced networking",
                "Non-Windows instances with a virtualization type",
            ),
            *("may not be used with instances of type", "must contain the parameter", "Parameter validation"),
        ),
    ),
)

_KINDS: Final = (_SPOT_LIMIT, _LIMIT, _PERMISSION, _CAPACITY, _CONFIGURATION)
"""In the order in which a message is searched: "limit exceeded" of a request is also throttling."""
_PHRASES: Final = {
    kind: tuple(p.casefold() for cause in CAUSES if cause.kind is kind for p in (*cause.codes, *cause.words))
    for kind in _KINDS
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
    for kind, phrases in _PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return kind
    status = find_status(text)
    return None if status is None else _KIND_BY_STATUS[status.status_class]


def classify(message: str) -> LaunchFailureKind:
    """Return the kind of a launch failure; ``UNKNOWN`` for an unknown message.

    An unknown failure raises an alarm, and On-Demand capacity covers it within the maximum.
    """
    return find_kind(message) or LaunchFailureKind.UNKNOWN
