"""What a change means for the workers: the tables of docs/operations.md, "What is replaced", as data.

``tests/review/test_consequences.py`` holds this table to that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Severity(IntEnum):
    """How much a change asks of the reader; greater is worse."""

    NOTHING = 0
    """No worker notices."""
    LATER = 1
    """Workers stay; what starts later is another."""
    WATCH = 2
    """Workers stay, or go one by one; something about them needs a look."""
    ENDS = 3
    """Workers end."""
    LOST = 4
    """What people have stored is lost, or the update fails half-way."""


@dataclass(frozen=True)
class Consequence:
    """What follows from ``op`` on a resource of ``kind`` by one of ``inputs`` (none: by any, or all of it).

    ``side`` narrows a capacity group to ``primary`` or ``fallback``. ``words`` end a sentence about the
    resource; ``{count}`` in them is how many workers the group's target asks for.
    """

    op: str
    kind: str
    inputs: frozenset[str]
    severity: Severity
    words: str
    side: str = ""


def _replaced(kind: str, inputs: str, severity: Severity, words: str) -> Consequence:
    return Consequence("replace", kind, frozenset(inputs.split()), severity, words)


def _updated(kind: str, inputs: str, severity: Severity, words: str) -> Consequence:
    return Consequence("update", kind, frozenset(inputs.split()), severity, words)


def _deleted(kind: str, severity: Severity, words: str, side: str = "") -> Consequence:
    return Consequence("delete", kind, frozenset(), severity, words, side)


_FLEET: Final = (
    "**{count} of the fleet end**: it is replaced, and the new one starts empty. "
    'First see "Replacing a fleet without losing workers"'
)
_ANOTHER_NETWORK: Final = (
    "moves to another network: new instances start there, and a file system cannot follow. "
    "Make a second stack and move instead"
)

CONSEQUENCES: Final = (
    # What is replaced.
    *(
        _replaced(
            kind,
            "cidrBlock",
            Severity.LOST,
            "**`network.cidr` cannot be changed**: an update fails half-way. Make a second stack and move",
        )
        for kind in ("Vpc", "Subnet")
    ),
    _replaced("SecurityGroup", "vpcId", Severity.LOST, _ANOTHER_NETWORK),
    _replaced("MountTarget", "subnetId", Severity.LOST, _ANOTHER_NETWORK),
    _replaced(
        "FileSystem",
        "kmsKeyId",
        Severity.LOST,
        "is made anew, empty: **its files are lost**. Copy them first",
    ),
    _replaced(
        "Repository",
        "encryptionConfigurations",
        Severity.LOST,
        "is made anew, empty: **its images are lost**. Copy them first",
    ),
    _replaced("FlowLog", "trafficType", Severity.NOTHING, "may not record a few minutes of traffic"),
    _replaced(
        "Broker",
        "deploymentMode",
        Severity.LOST,
        "is made anew: **what waits in the old broker is lost**. Drain it first",
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
        Severity.WATCH,
        "is made anew: mounts through the old one fail, restart the workers. No file is lost",
    ),
    _replaced("LifecyclePolicy", "policy", Severity.NOTHING, "for a moment no image expires"),
    _replaced("TopicSubscription", "endpoint", Severity.NOTHING, "the new address must confirm"),
    # What is taken out of the stack file.
    _deleted("SpotFleetRequest", Severity.ENDS, "**{count} of the fleet end**: it is deleted"),
    _deleted("Group", Severity.ENDS, "**{count} of the primary group end**: it is deleted", "primary"),
    _deleted(
        "Group", Severity.ENDS, "**every on-demand worker ends at once**: its group is deleted", "fallback"
    ),
    _deleted("LogGroup", Severity.WATCH, "goes, with what was logged"),
    _deleted("Broker", Severity.LOST, "goes, **and what waits in it**"),
    _deleted("Queue", Severity.LOST, "goes, **and what waits in it**"),
    _deleted("Bucket", Severity.LOST, "goes; AWS refuses while something is in it"),
    _deleted("Repository", Severity.LOST, "goes; AWS refuses while images are in it"),
    _deleted("FileSystem", Severity.LOST, "goes, **with all files**"),
    _deleted("AccessPoint", Severity.WATCH, "goes: mounts through it fail"),
    _deleted("Table", Severity.LOST, "goes, **and what the controller knows**"),
    _deleted("Subnet", Severity.ENDS, "goes, **and what runs in it ends**"),
    _deleted("NatGateway", Severity.WATCH, "goes: connections through it break"),
    Consequence(
        "replace", "NatGateway", frozenset(), Severity.WATCH, "is made anew: connections through it break"
    ),
    # What changes in place.
    _updated(
        "LaunchTemplate",
        "",
        Severity.LATER,
        "another template: running instances stay, what starts later takes it; a warm pool keeps the old one",
    ),
    _updated("Group", "mixedInstancesPolicy", Severity.LATER, "another mix: running instances stay"),
    _updated("Group", "vpcZoneIdentifiers", Severity.LATER, "other zones: running instances stay"),
    _updated("Group", "maxSize", Severity.LATER, "another maximum"),
    _updated("Group", "warmPool", Severity.LATER, "another warm pool"),
    _updated(
        "Broker",
        "",
        Severity.WATCH,
        "changes in the next maintenance window; a single broker is away meanwhile",
    ),
    _updated("Function", "", Severity.NOTHING, "other code or settings: running workers stay"),
)
