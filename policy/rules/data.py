"""What is stored: encryption and protection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policy.rules.model import UNKNOWN, Outside, PolicyRule, RuleSettings, Subject

_YES: Final = (True, "true", UNKNOWN)
STATEFUL: Final = frozenset({"Bucket", "FileSystem", "Repository", "Table"})


def _encrypted(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    """S3 and DynamoDB encrypt all by themselves; what can be left open is asked for here."""
    inputs = subject.inputs
    if subject.kind in ("FileSystem", "Volume") and inputs.get("encrypted") not in _YES:
        yield f"encrypted is {inputs.get('encrypted')}, allowed: true"
    managed = inputs.get("sqsManagedSseEnabled") in _YES or inputs.get("kmsMasterKeyId")
    if subject.kind == "Queue" and not managed:
        yield "messages lie open, allowed: sqsManagedSseEnabled or kmsMasterKeyId"
    if subject.kind == "LaunchTemplate":
        devices = inputs.get("blockDeviceMappings") or ()
        for device in () if isinstance(devices, str) else devices:
            disk = device.get("ebs") or {}
            # A snapshot's disk is as the snapshot; the program refuses one that is not encrypted.
            named = disk and disk != UNKNOWN and not disk.get("snapshotId")
            if named and disk.get("encrypted") not in _YES:
                yield f"disk {device.get('deviceName')} is not encrypted, allowed: encrypted"
        if not devices:
            yield "no disk is named, so the image's own decides, allowed: an encrypted disk"


def _protected(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    # What may be emptied by an update can be made anew.
    if subject.kind in STATEFUL and not subject.protected and subject.inputs.get("forceDestroy") is not True:
        yield "holds data and can be deleted, allowed: protect: true in the stack file"


RULES: Final = (
    PolicyRule("encrypted", "What is stored is encrypted at rest.", "mandatory", _encrypted),
    PolicyRule("protected", "What holds data is protected from deletion.", "advisory", _protected),
)
