"""Rules for stored data: encryption and protection from deletion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject

_YES: Final = (True, "true", UNKNOWN)
STATEFUL: Final = frozenset({"Bucket", "FileSystem", "Repository", "Table"})


def _encrypted(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    """S3 and DynamoDB always encrypt; this checks resources whose encryption is optional."""
    inputs = subject.inputs
    if subject.kind in ("FileSystem", "Volume") and inputs.get("encrypted") not in _YES:
        yield f"encrypted is {inputs.get('encrypted')}, allowed: true"
    managed = inputs.get("sqsManagedSseEnabled") in _YES or inputs.get("kmsMasterKeyId")
    if subject.kind == "Queue" and not managed:
        yield "messages are not encrypted, allowed: sqsManagedSseEnabled or kmsMasterKeyId"
    if subject.kind == "LaunchTemplate":
        devices = inputs.get("blockDeviceMappings") or ()
        for device in () if isinstance(devices, str) else devices:
            disk = device.get("ebs") or {}
            # A volume from a snapshot is encrypted like the snapshot, which the program checks.
            is_declared = disk and disk != UNKNOWN and not disk.get("snapshotId")
            if is_declared and disk.get("encrypted") not in _YES:
                yield f"disk {device.get('deviceName')} is not encrypted, allowed: encrypted"
        if not devices:
            yield "no blockDeviceMappings: the image decides about encryption, allowed: an encrypted disk"


def _protected(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    # Resources with forceDestroy hold reproducible data.
    if subject.kind in STATEFUL and not subject.protected and subject.inputs.get("forceDestroy") is not True:
        yield "holds data and can be deleted, allowed: protect: true in the stack file"


RULES: Final = (
    PolicyRule("encrypted", "Stored data is encrypted at rest.", "mandatory", _encrypted),
    PolicyRule("protected", "Resources with data are protected from deletion.", "advisory", _protected),
)
