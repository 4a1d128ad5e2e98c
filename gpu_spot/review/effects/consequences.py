"""Effects of resource changes on workers: the tables of docs/operations.md, "What is replaced", as data.

``tests/review/test_verdict.py`` compares this table with that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Severity(IntEnum):
    """Severity of a change; greater is worse."""

    NOTHING = 0
    """No effect on workers."""
    LATER = 1
    """Running workers are not affected; later ones differ."""
    WATCH = 2
    """Workers keep running or are replaced one by one; needs attention."""
    UNKNOWN = 3
    """Workers may end: it is not known."""
    ENDS = 4
    """Workers are terminated."""
    LOST = 5
    """Stored data is lost, or the update fails half-way."""


@dataclass(frozen=True)
class Consequence:
    """The effect of ``op`` on a resource of ``kind`` by one of ``inputs`` (empty: any input).

    ``group_role`` limits it to the ``primary`` or ``fallback`` group. ``words`` complete a sentence about the
    resource; ``{count}`` is the group's target: where they have it, all workers of the group end.
    """

    op: str
    kind: str
    inputs: frozenset[str]
    severity: Severity
    words: str
    group_role: str = ""


_TOKENS: Final = (
    *("autoscaling/group:Group", "cloudwatch/logGroup:LogGroup", "dynamodb/table:Table"),
    *("ec2/flowLog:FlowLog", "ec2/launchTemplate:LaunchTemplate", "ec2/natGateway:NatGateway"),
    "ec2/placementGroup:PlacementGroup",
    *("ec2/securityGroup:SecurityGroup", "ec2/spotFleetRequest:SpotFleetRequest", "ec2/subnet:Subnet"),
    *("ec2/vpc:Vpc", "ecr/lifecyclePolicy:LifecyclePolicy", "ecr/repository:Repository"),
    *("efs/accessPoint:AccessPoint", "efs/fileSystem:FileSystem", "efs/mountTarget:MountTarget"),
    *("eks/cluster:Cluster", "lambda/function:Function", "mq/broker:Broker", "s3/bucket:Bucket"),
    *("sns/topicSubscription:TopicSubscription", "sqs/queue:Queue"),
)
TYPES: Final = {token.rpartition(":")[2]: f"aws:{token}" for token in _TOKENS}
"""The type of each kind in the table."""


def _replaced(kind: str, inputs: str, severity: Severity, words: str) -> Consequence:
    return Consequence("replace", kind, frozenset(inputs.split()), severity, words)


def _updated(kind: str, inputs: str, severity: Severity, words: str) -> Consequence:
    return Consequence("update", kind, frozenset(inputs.split()), severity, words)


def _deleted(kind: str, severity: Severity, words: str, side: str = "") -> Consequence:
    return Consequence("delete", kind, frozenset(), severity, words, side)


_FLEET: Final = (
    "**{count} of the fleet are terminated**: it is replaced, and the new fleet starts empty. "
    'See "Replacing a fleet without losing workers" first'
)
_ANOTHER_NETWORK: Final = (
    "moves to another network: new instances start there, but a file system cannot move. "
    "Create a second stack and migrate instead"
)

CONSEQUENCES: Final = (
    # What is replaced.
    _replaced(
        "Subnet",
        "cidrBlock",
        Severity.LOST,
        "**`network.cidr` cannot be changed**: updates fail half-way. Create a second stack and migrate",
    ),
    _replaced("SecurityGroup", "vpcId", Severity.LOST, _ANOTHER_NETWORK),
    _replaced("MountTarget", "subnetId", Severity.LOST, _ANOTHER_NETWORK),
    _replaced(
        "FileSystem",
        "kmsKeyId",
        Severity.LOST,
        "is replaced by an empty one: **its files are lost**. Copy them first",
    ),
    _replaced(
        "Repository",
        "encryptionConfigurations",
        Severity.LOST,
        "is replaced by an empty one: **its images are lost**. Copy them first",
    ),
    _replaced("FlowLog", "trafficType", Severity.NOTHING, "may miss a few minutes of traffic"),
    _replaced(
        "Broker",
        "deploymentMode",
        Severity.LOST,
        "is replaced: **messages in the old broker are lost**. Drain it first",
    ),
    _replaced(
        "SpotFleetRequest",
        "launchTemplateConfigs allocationStrategy spotPrice fleetType replaceUnhealthyInstances "
        "onDemandAllocationStrategy targetCapacity onDemandTargetCapacity",
        Severity.ENDS,
        _FLEET,
    ),
    _replaced(
        "AccessPoint",
        "rootDirectory posixUser",
        Severity.UNKNOWN,
        "is replaced: mounts of the old one fail; restart the workers. No files are lost",
    ),
    _replaced("LifecyclePolicy", "policy", Severity.NOTHING, "other images expire, within a day"),
    _replaced(
        "TopicSubscription", "endpoint", Severity.NOTHING, "the new address must confirm the subscription"
    ),
    # What is removed from the stack file.
    _deleted("SpotFleetRequest", Severity.ENDS, "**{count} of the fleet are terminated**: it is deleted"),
    _deleted(
        "Group", Severity.ENDS, "**{count} of the primary group are terminated**: it is deleted", "primary"
    ),
    _deleted(
        "Group",
        Severity.ENDS,
        "**all On-Demand workers are terminated at once**: the group is deleted",
        "fallback",
    ),
    _deleted("LogGroup", Severity.WATCH, "is deleted, with its logs"),
    _deleted("Broker", Severity.LOST, "is deleted, **with its messages**"),
    _deleted("Queue", Severity.LOST, "is deleted, **with its messages**"),
    _deleted("Bucket", Severity.LOST, "is deleted; AWS rejects this while it is not empty"),
    _deleted("Repository", Severity.LOST, "is deleted; AWS rejects this while it contains images"),
    _deleted("FileSystem", Severity.LOST, "is deleted, **with all files**"),
    _deleted("AccessPoint", Severity.UNKNOWN, "is deleted: its mounts fail"),
    _deleted("Table", Severity.LOST, "is deleted, **with the controller's state**"),
    _deleted("PlacementGroup", Severity.WATCH, "is deleted; AWS rejects this while instances are in it"),
    _deleted("NatGateway", Severity.UNKNOWN, "is deleted: connections through it break"),
    Consequence(
        "replace", "NatGateway", frozenset(), Severity.UNKNOWN, "is replaced: connections through it break"
    ),
    *(
        Consequence(
            op,
            "Cluster",
            frozenset(),
            Severity.ENDS,
            f"is {op}d: **every pod of the Kubernetes cluster ends**, and what others run in it",
        )
        for op in ("replace", "delete")
    ),
    # What changes in place.
    _updated(
        "LaunchTemplate",
        "",
        Severity.LATER,
        "new launch template version for new instances; running and warm instances keep the old one",
    ),
    _updated(
        "Group",
        "mixedInstancesPolicy",
        Severity.LATER,
        "new instance mix: running instances are not affected",
    ),
    _updated("Group", "vpcZoneIdentifiers", Severity.LATER, "new zones: running instances are not affected"),
    _updated("Group", "maxSize", Severity.LATER, "new maximum size"),
    _updated("Group", "warmPool", Severity.LATER, "new warm pool settings"),
    _updated(
        "Broker",
        "hostInstanceType engineVersion",
        Severity.UNKNOWN,
        "changes in the next maintenance window; a single-instance broker is unavailable meanwhile",
    ),
    _updated("Function", "", Severity.NOTHING, "new code or settings: running workers are not affected"),
)
