"""Validation of a cluster's API: fields, names, kinds, immutable fields."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, Final

from pulumi_on_moto.cluster.fields import Path
from pulumi_on_moto.errors import LocalCloudError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Kubernetes, "Object Names and IDs", DNS subdomain names."""

_CORE: Final = frozenset(
    {
        *("", "apps", "autoscaling", "batch", "policy"),
        *(f"{group}.k8s.io" for group in ("networking", "rbac.authorization", "scheduling", "storage")),
        "admissionregistration.k8s.io",
    }
)
"""Built-in API groups that programs use."""

IN_CLUSTER: Final = frozenset(
    {
        *("Namespace", "PersistentVolume", "StorageClass", "ClusterRole", "ClusterRoleBinding"),
        *("PriorityClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
"""Core kinds without a namespace."""

CHARTS: Final[Mapping[str, frozenset[str]]] = {
    "karpenter": frozenset({"karpenter.sh", "karpenter.k8s.aws"}),
    "kueue": frozenset({"kueue.x-k8s.io"}),
    "keda": frozenset({"keda.sh"}),
    "kubeflow-trainer": frozenset({"trainer.kubeflow.org"}),
}
"""Groups of custom resources by the Helm chart that installs them."""
ADDONS: Final[Mapping[str, frozenset[str]]] = {
    "aws-secrets-store-csi-driver-provider": frozenset({"secrets-store.csi.x-k8s.io"}),
    "snapshot-controller": frozenset({"snapshot.storage.k8s.io"}),
}
"""Groups of custom resources by EKS add-on (EKS guide, "CSI snapshot controller")."""


def _of_spec(*fields: str) -> list[Path]:
    return [("spec", field) for field in fields]


_IMMUTABLE: Final[Mapping[tuple[str, str], list[Path]]] = {
    # pkg/apis/batch/validation: ValidateJobSpecUpdate (of an indexed Job completions go with parallelism)
    ("batch/v1", "Job"): _of_spec(
        *("template", "selector", "completions", "completionMode", "podFailurePolicy"),
        *("backoffLimitPerIndex", "managedBy", "successPolicy"),
    ),
    # pkg/apis/apps/validation: ValidateDeploymentUpdate
    ("apps/v1", "Deployment"): _of_spec("selector"),
    # pkg/apis/storage/validation: ValidateStorageClassUpdate
    ("storage.k8s.io/v1", "StorageClass"): [
        (field,) for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    ],
    # pkg/apis/core/validation: ValidatePersistentVolumeUpdate, ValidatePersistentVolumeClaimUpdate
    ("v1", "PersistentVolume"): _of_spec("csi"),
    ("v1", "PersistentVolumeClaim"): _of_spec("accessModes", "storageClassName", "volumeName", "dataSource"),
}


def is_core(api_version: str) -> bool:
    """Return whether Kubernetes serves this version of a built-in group."""
    return api_version.rpartition("/")[0] in _CORE


def invalid(manifest: Mapping[str, Any], version: str) -> str:
    """Return why an object is invalid, empty if it is valid; core objects by the schemas of ``version``.

    Raises:
        LocalCloudError: the schemas are not installed.
    """
    name = str((manifest.get("metadata") or {}).get("name", ""))
    if not _NAME.fullmatch(name):
        return f"metadata.name must be lower case letters, digits, '-' and '.', not {name!r}"
    if not is_core(str(manifest["apiVersion"])):
        return ""
    try:
        schemas: Any = importlib.import_module("kubernetes_validate")
    except ImportError:
        raise LocalCloudError(
            "Kubernetes' schemas are not installed, needed: pulumi_on_moto[kubernetes]"
        ) from None
    try:
        schemas.validate(dict(manifest), version, strict=True)
    except schemas.SchemaNotFoundError:
        return f"{manifest['apiVersion']} {manifest['kind']} is not served by {version}"
    except schemas.ValidationError as error:
        return str(error).splitlines()[0]
    return ""


def immutable(manifest: Mapping[str, Any], changed: Path) -> bool:
    """Return whether this field of an existing object is immutable."""
    immutable_paths = _IMMUTABLE.get((str(manifest["apiVersion"]), str(manifest["kind"])), [])
    if manifest["kind"] == "ConfigMap" and manifest.get("immutable"):
        immutable_paths = [("data",), ("immutable",)]
    return any(changed[: len(path)] == path for path in immutable_paths)
