"""Rules for stored data: encryption and protection from deletion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject, as_list

_YES: Final = (True, "true", UNKNOWN)
_WITH_DISKS: Final = frozenset({"Instance", "LaunchConfiguration", "SpotInstanceRequest"})
STATEFUL: Final = frozenset({"Bucket", "FileSystem", "Repository", "Table"})


def _encrypted(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    """S3 and DynamoDB always encrypt; this checks resources whose encryption is optional."""
    inputs = subject.inputs
    if subject.kind in ("FileSystem", "SnapshotCopy", "Volume") and inputs.get("encrypted") not in _YES:
        yield f"encrypted must be true, not {inputs.get('encrypted')}"
    for specification in as_list(inputs.get("launchSpecifications")):
        if isinstance(specification, Mapping):
            yield from _disks(specification)
    if subject.type.startswith("aws:ec2/") and subject.kind in _WITH_DISKS:
        yield from _disks(inputs)
    if (
        subject.type.startswith("aws:rds/")
        and "engine" in inputs
        and inputs.get("storageEncrypted") not in _YES
    ):
        yield f"storageEncrypted must be true, not {inputs.get('storageEncrypted')}"
    managed = inputs.get("sqsManagedSseEnabled") in _YES or inputs.get("kmsMasterKeyId")
    if subject.kind == "Queue" and not managed:
        yield "does not encrypt its messages; set sqsManagedSseEnabled or kmsMasterKeyId"
    if subject.kind == "LaunchTemplate":
        yield from _template(inputs)
    spec = inputs.get("spec")
    if subject.type.endswith(":EC2NodeClass") and isinstance(spec, Mapping):
        yield from _template(spec)


def _disks(inputs: Mapping[str, Any]) -> Iterator[str]:
    disks = [
        *as_list(inputs.get("rootBlockDevice") or {}),
        *as_list(inputs.get("rootBlockDevices")),
        *as_list(inputs.get("ebsBlockDevices")),
    ]
    for disk in disks:
        if isinstance(disk, Mapping) and disk.get("encrypted") not in _YES:
            yield f"disk {disk.get('deviceName', 'of the root')} must be encrypted; set encrypted"


def _template(inputs: Mapping[str, Any]) -> Iterator[str]:
    devices = inputs.get("blockDeviceMappings") or ()
    for device in () if isinstance(devices, str) else devices:
        disk = device.get("ebs") or {}
        # A volume from a snapshot is encrypted like the snapshot, which the program checks.
        is_declared = disk and disk != UNKNOWN and not disk.get("snapshotId")
        if is_declared and disk.get("encrypted") not in _YES:
            yield f"disk {device.get('deviceName')} must be encrypted; set encrypted"
    if not devices:
        yield ("has no blockDeviceMappings, so the image decides about encryption; declare an encrypted disk")


def _protected(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    # Resources with forceDestroy hold reproducible data.
    if subject.kind in STATEFUL and not subject.protected and subject.inputs.get("forceDestroy") is not True:
        yield "holds data and is not protected from deletion; set protect: true in the stack file"


RULES: Final = (
    PolicyRule("encrypted", "Stored data is encrypted at rest.", "mandatory", _encrypted),
    PolicyRule("protected", "Resources with data are protected from deletion.", "advisory", _protected),
)
