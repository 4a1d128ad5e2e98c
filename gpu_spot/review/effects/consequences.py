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


_ROWS: Final = """
replace Subnet lost cidrBlock | **`network.cidr` cannot be changed**: updates fail half-way. Create a second \
stack and migrate
replace SecurityGroup lost vpcId | moves to another network: new instances start there, but a file system \
cannot move. Create a second stack and migrate instead
replace MountTarget lost subnetId | moves to another network: new instances start there, but a file system \
cannot move. Create a second stack and migrate instead
replace FileSystem lost kmsKeyId | is replaced by an empty one: **its files are lost**. Copy them first
replace Repository lost encryptionConfigurations | is replaced by an empty one: **its images are lost**. \
Copy them first
replace FlowLog nothing trafficType | may miss a few minutes of traffic
replace Broker lost deploymentMode | is replaced: **messages in the old broker are lost**. Drain it first
replace SpotFleetRequest ends allocationStrategy fleetType launchTemplateConfigs onDemandAllocationStrategy \
onDemandTargetCapacity replaceUnhealthyInstances spotPrice targetCapacity | **{count} of the fleet are \
terminated**: it is replaced, and the new fleet starts empty. See "Replacing a fleet without losing workers" \
first
replace AccessPoint unknown posixUser rootDirectory | is replaced: mounts of the old one fail; restart the \
workers. No files are lost
replace LifecyclePolicy nothing policy | other images expire, within a day
replace TopicSubscription nothing endpoint | the new address must confirm the subscription
delete SpotFleetRequest ends | **{count} of the fleet are terminated**: it is deleted
delete Group.primary ends | **{count} of the primary group are terminated**: it is deleted
delete Group.fallback ends | **all On-Demand workers are terminated at once**: the group is deleted
delete LogGroup watch | is deleted, with its logs
delete Broker lost | is deleted, **with its messages**
delete Queue lost | is deleted, **with its messages**
delete Bucket lost | is deleted; AWS rejects this while it is not empty
delete Repository lost | is deleted; AWS rejects this while it contains images
delete FileSystem lost | is deleted, **with all files**
delete AccessPoint unknown | is deleted: its mounts fail
delete Table lost | is deleted, **with the controller's state**
delete PlacementGroup watch | is deleted; AWS rejects this while instances are in it
delete NatGateway unknown | is deleted: connections through it break
replace NatGateway unknown | is replaced: connections through it break
replace Cluster ends | is replaced: **every pod of the Kubernetes cluster ends**, and what others run in it
delete Cluster ends | is deleted: **every pod of the Kubernetes cluster ends**, and what others run in it
update LaunchTemplate later | new launch template version for new instances; running and warm instances keep \
the old one
update Group later mixedInstancesPolicy | new instance mix: running instances are not affected
update Group later vpcZoneIdentifiers | new zones: running instances are not affected
update Group later maxSize | new maximum size
update Group later warmPool | new warm pool settings
update Broker unknown engineVersion hostInstanceType | changes in the next maintenance window; a \
single-instance broker is unavailable meanwhile
update Function nothing | new code or settings: running workers are not affected
"""


def _consequence(row: str) -> Consequence:
    """Read ``OP KIND[.ROLE] SEVERITY INPUTS | WORDS``."""
    head, _, words = row.partition(" | ")
    op, kind, severity, *inputs = head.split()
    name, _, role = kind.partition(".")
    return Consequence(op, name, frozenset(inputs), Severity[severity.upper()], words, role)


CONSEQUENCES: Final = tuple(map(_consequence, _ROWS.strip().splitlines()))
