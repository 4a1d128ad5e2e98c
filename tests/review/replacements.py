"""What the providers replace, of the inputs that the program sets: facts with their source and date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_spot.review.value_diff import value_differences
from tests.infra.test_replacements import FORCES_NEW

_MORE: Final = {
    "Cluster": {"bootstrapSelfManagedAddons", "name", "roleArn"},
    "NodeGroup": {"amiType", "capacityType", "clusterName", "instanceTypes", "nodeRoleArn", "subnetIds"},
    "Budget": {"name"},
    "Function": {"name", "packageType"},
    "FunctionEventInvokeConfig": {"functionName", "qualifier"},
    "Permission": {"action", "function", "principal", "sourceArn"},
}
_KUBERNETES: Final[Mapping[str, tuple[str, ...]]] = {
    "ConfigMap": ("data", "binaryData"),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolume": ("spec.csi",),
    "PersistentVolumeClaim": ("spec",),
    "Secret": ("type", "data", "stringData"),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
}
_NAMES: Final = ("metadata.name", "metadata.namespace")
_HELM: Final = frozenset({"name", "namespace"})


def forcing(type_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the inputs whose change replaces a resource."""
    kind = type_.rpartition(":")[2]
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if type_.startswith("kubernetes:helm.sh/"):
        return changed & _HELM
    if type_.startswith("kubernetes:"):
        return set(_top_keys(before, after, (*_NAMES, *_KUBERNETES.get(kind, ()))))
    return changed & ({**FORCES_NEW, **_MORE}.get(kind, set()) if type_.startswith("aws:") else set())


def _top_keys(before: Mapping[str, Any], after: Mapping[str, Any], paths: tuple[str, ...]) -> Iterator[str]:
    for path, _, _ in value_differences(dict(before), dict(after)):
        if path.startswith(paths):
            yield path.partition(".")[0]
