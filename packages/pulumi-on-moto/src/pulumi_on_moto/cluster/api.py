"""A Kubernetes API server that stores and validates, and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pulumi_on_moto.cluster import rules
from pulumi_on_moto.cluster.fields import Path, fields, joined

ENGINE: Final = "pulumi"
"""The field manager of declared resources."""
_IDENTITY: Final = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
_ALWAYS: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


class ObjectKey(NamedTuple):
    """The key of an object."""

    api_version: str
    kind: str
    namespace: str
    name: str


class ApiRefusedError(ValueError):
    """The API rejects a request, with a message similar to Kubernetes'."""


@dataclass(slots=True)
class _StoredObject:
    """An object: the value and the owners of each field."""

    values: dict[Path, Any]
    owners: dict[Path, set[str]]


@dataclass(slots=True)
class ApiServer:
    """One cluster's objects.

    Attributes:
        version: the Kubernetes version, for example ``1.36``.
        groups: API groups of served custom resources; None: any group, as for an existing cluster of unknown
        content.
        unchecked: custom resources, which are not validated for lack of a schema.
    """

    version: str
    groups: set[str] | None = None
    unchecked: set[ObjectKey] = field(default_factory=set)
    _objects: dict[ObjectKey, _StoredObject] = field(default_factory=dict)

    def __contains__(self, key: ObjectKey) -> bool:
        """Return whether an object exists."""
        return key in self._objects

    def __iter__(self) -> Iterator[ObjectKey]:
        """Yield the keys of all objects in order of creation."""
        return iter(tuple(self._objects))

    def read(self, key: ObjectKey) -> dict[str, Any]:
        """Return an object with the fields of all managers."""
        return joined(self._objects[key].values)

    def apply(self, manifest: Mapping[str, Any], manager: str = ENGINE) -> ObjectKey:
        """Create or update an object as server-side apply does; return its name.

        Fields that the manager set before and now omits are removed unless another manager owns them, too.

        Raises:
            ApiRefusedError: the object is invalid, or a changed field is immutable or owned by another
            manager.
        """
        key = key_of(manifest)
        self._admit(key, manifest)
        desired_fields, stored = fields(manifest), self._objects.get(key)
        if stored is None:
            self._objects[key] = _StoredObject(desired_fields, {path: {manager} for path in desired_fields})
            return key
        changed = [path for path, value in desired_fields.items() if stored.values.get(path) != value]
        dropped_paths = [
            path
            for path, managers in stored.owners.items()
            if manager in managers and path not in desired_fields
        ]
        removed_paths = [path for path in dropped_paths if stored.owners[path] == {manager}]
        for path in changed:
            if other_managers := stored.owners.get(path, set()) - {manager}:
                raise ApiRefusedError(
                    f"conflict with {', '.join(sorted(other_managers))} over {'.'.join(path)}"
                )
        for path in (*changed, *removed_paths):
            if rules.immutable(manifest, path):
                raise ApiRefusedError(f"{'.'.join(path)} is immutable")
        for path in dropped_paths:
            stored.owners[path].discard(manager)
        for path in removed_paths:
            del stored.values[path], stored.owners[path]
        for path, value in desired_fields.items():
            stored.values[path] = value
            stored.owners.setdefault(path, set()).add(manager)
        return key

    def take(self, manager: str, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        """Set fields by an update of a controller, which then owns them, as an autoscaler ``spec.replicas``.

        Raises:
            ApiRefusedError: the object would be invalid.
        """
        stored = self._objects[key]
        changed_fields = {path: value for path, value in fields(manifest).items() if path not in _IDENTITY}
        if violation := rules.invalid(joined({**stored.values, **changed_fields}), self.version):
            raise ApiRefusedError(violation)
        for path, value in changed_fields.items():
            stored.values[path], stored.owners[path] = value, {manager}

    def _admit(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        group = key.api_version.rpartition("/")[0]
        if not rules.is_core(key.api_version):
            if self.groups is not None and group not in self.groups:
                raise ApiRefusedError(f"no matches for kind {key.kind!r} in {key.api_version}")
            self.unchecked.add(key)
        if violation := rules.invalid(manifest, self.version):
            raise ApiRefusedError(violation)
        if rules.is_core(key.api_version) and (key.kind in rules.IN_CLUSTER) == bool(key.namespace):
            raise ApiRefusedError(
                f"metadata.namespace is {key.namespace!r}, which is not valid for {key.kind}"
            )
        namespace_exists = (
            key.namespace in _ALWAYS or ObjectKey("v1", "Namespace", "", key.namespace) in self._objects
        )
        if key.namespace and not namespace_exists:
            raise ApiRefusedError(f"namespaces {key.namespace!r} not found")


def key_of(manifest: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    metadata = manifest.get("metadata") or {}
    return ObjectKey(
        str(manifest["apiVersion"]),
        str(manifest["kind"]),
        metadata.get("namespace") or "",
        metadata.get("name") or "",
    )
