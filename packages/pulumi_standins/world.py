"""What exists behind the stand-ins, what was done to it, and which faults a test has planted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "GPU_SPOT_STANDINS"
"""Variable with the directory."""

_IN_USE: Final = {
    **dict.fromkeys(("Eip", "InternetGateway", "SecurityGroup", "Subnet", "Vpc"), "DependencyViolation"),
    **dict.fromkeys(("InstanceProfile", "Policy", "Role"), "DeleteConflict"),
    **dict.fromkeys(("Cluster", "TargetGroup"), "ResourceInUse"),
    "EventRule": "ValidationException",
    "FileSystem": "FileSystemInUse",
    "RouteTable": "DependencyViolation",
}
"""What cannot be deleted while something refers to it, with AWS's error."""
_UNIQUE: Final = {
    "EventTarget": ("rule", "targetId"),
    "InternetGateway": ("vpcId",),
    "LifecycleHook": ("autoscalingGroupName", "name"),
    "Listener": ("loadBalancerArn", "port"),
    "MountTarget": ("fileSystemId", "subnetId"),
    "PodIdentityAssociation": ("clusterName", "namespace", "serviceAccount"),
    "Route": ("routeTableId", "destinationCidrBlock"),
    "RouteTableAssociation": ("subnetId",),
    "Subnet": ("vpcId", "cidrBlock"),
    "RolePolicy": ("role", "name"),
    "VpcEndpoint": ("vpcId", "serviceName"),
}
"""The inputs of which two resources of a kind cannot have the same; else the name."""


class RefusedError(Exception):
    """The cloud refuses a call; the text is what the engine shows."""


def _kind(urn: str) -> str:
    """Return the last part of a type of AWS, else an empty text."""
    type_ = urn.split("::")[2].rpartition("$")[2]
    return type_.rpartition(":")[2] if type_.startswith("aws:") else ""


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    call: str
    match: str = ""
    after: int = 0
    message: str = ""
    effect: str = "refuse"


class World:
    """The shared directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.existing = folder / "exists"
        self.existing.mkdir(parents=True, exist_ok=True)
        self._calls: dict[Fault, int] = {}

    def plant(self, *faults: Fault, drift: dict[str, dict[str, Any] | None] | None = None) -> None:
        """Replace the planted faults; ``drift``: changed inputs by ``Kind::name``, None: lost."""
        planted = {"faults": [asdict(fault) for fault in faults], "drift": drift or {}}
        (self.folder / "faults.json").write_text(json.dumps(planted), "utf-8")

    def drift(self) -> dict[str, dict[str, Any] | None]:
        drift: dict[str, dict[str, Any] | None] = self._planted()["drift"]
        return drift

    def _planted(self) -> dict[str, Any]:
        path = self.folder / "faults.json"
        planted: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return {"faults": [], "drift": {}, **planted}

    def meet_faults(self, call: str, urn: str = "") -> None:
        """Fail a call if a fault is planted for it."""
        for raw in self._planted()["faults"]:
            fault = Fault(**raw)
            if fault.call != call or not re.search(fault.match, urn):
                continue
            self._calls[fault] = self._calls.get(fault, 0) + 1
            if self._calls[fault] <= fault.after:
                continue
            if fault.effect == "exit":
                os._exit(3)
            if fault.effect == "hang":
                (self.folder / "hangs").write_text(urn, "utf-8")
                while True:
                    time.sleep(1)
            raise RefusedError(fault.message)

    def put_instances(self, zones: dict[str, list[str]]) -> None:
        """Set the ids of the instances that run, by zone."""
        (self.folder / "instances.json").write_text(json.dumps(zones), "utf-8")

    def _end_instances(self, owner: str) -> None:
        """End the instances of a group or fleet that is deleted (``forceDelete``)."""
        path = self.folder / "instances.json"
        zones: dict[str, list[str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.put_instances(
            {zone: [one for one in ids if not one.startswith(owner)] for zone, ids in zones.items()}
        )

    def instances(self, zones: Container[str]) -> list[str]:
        """Return the ids of the instances in some zones."""
        path = self.folder / "instances.json"
        found: dict[str, list[str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return [instance for zone, ids in found.items() if zone in zones for instance in ids]

    def refuse_if_used(self, urn: str, resource_id: str) -> None:
        """Fail the deletion of what is in use, as AWS does: by another resource, or by instances.

        Sources: the errors of each deletion in AWS's API references, as ``_IN_USE`` names them.
        """
        kind = _kind(urn)
        if kind not in _IN_USE:
            return
        path = self._path(urn, resource_id)
        inputs = json.loads(path.read_text("utf-8"))["inputs"] if path.exists() else {}
        is_private = kind == "Subnet" and "::private-" in urn
        users = self.instances({inputs.get("availabilityZone")}) if is_private else []
        users += [
            one["urn"]
            for one in self.exists()
            if one["id"] != resource_id and json.dumps(resource_id) in json.dumps(one["inputs"])
        ]
        if users:
            raise RefusedError(f"{_IN_USE[kind]}: {resource_id} is in use by {', '.join(users[:3])}")

    def refuse_if_taken(self, urn: str, inputs: dict[str, Any]) -> None:
        """Fail the creation of what exists: two resources of a kind with the same name, block or place."""
        kind = _kind(urn)
        keys = _UNIQUE.get(kind, ("name",))
        place = [inputs.get(key) for key in keys]
        if not kind or not any(place):
            return
        for one in self.exists():
            if _kind(one["urn"]) == kind and [one["inputs"].get(key) for key in keys] == place:
                raise RefusedError(f"AlreadyExists: {kind} {place} is {one['urn']}")

    def record(self, call: str, urn: str, resource_id: str, inputs: dict[str, Any]) -> None:
        """Note a call that succeeded."""
        line = json.dumps({"call": call, "urn": urn, "id": resource_id})
        with (self.folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(line + "\n")
        path = self._path(urn, resource_id)
        if call == "delete":
            path.unlink(missing_ok=True)
            if _kind(urn) in ("Group", "SpotFleetRequest"):
                self._end_instances(f"{resource_id}/")
        else:
            path.write_text(json.dumps({"urn": urn, "id": resource_id, "inputs": inputs}), "utf-8")

    def _path(self, urn: str, resource_id: str) -> Path:
        return self.existing / f"{hashlib.sha256(f'{urn} {resource_id}'.encode()).hexdigest()}.json"

    def exists(self) -> list[dict[str, Any]]:
        """Return what exists: ``urn``, ``id``, ``inputs``."""
        return [json.loads(path.read_text("utf-8")) for path in sorted(self.existing.iterdir())]

    def journal(self) -> list[dict[str, str]]:
        """Return all calls that succeeded: ``call``, ``urn``, ``id``."""
        path = self.folder / "journal.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def forces_new(self, kind: str) -> frozenset[str]:
        """Return the inputs of a kind whose change replaces the resource."""
        if not hasattr(self, "_forces_new"):
            path = self.folder / "forces_new.json"
            self._forces_new = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return frozenset(self._forces_new.get(kind, ()))
