"""Validation of Kubernetes objects as a strict API server of a given version would do it.

Built-in objects are validated by kubernetes-validate's strict schemas, Trainer's by the models of its API
package, which drop unknown keys silently: a comparison finds those. The other custom resources
(``CUSTOM_WITHOUT_SCHEMA``) have no packaged schema; their keys are checked against the lists below, taken
from their documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import kubernetes_validate

_TRAINER: Final = {
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "TrainerV1alpha1TrainJob",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "TrainerV1alpha1TrainingRuntime",
}
_ANY: Final[dict[str, Any]] = {"": None}
"""Keys chosen by users: labels, parameters, limits."""
_META: Final = {"name": None, "namespace": None, "labels": _ANY, "annotations": _ANY}
_TERMS: Final = {"tags": _ANY, "id": None, "name": None}
_KEYS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    # karpenter.sh, "NodePools" (v1)
    ("karpenter.sh/v1", "NodePool"): {
        "template": {
            "metadata": {"labels": _ANY, "annotations": _ANY},
            "spec": {
                "nodeClassRef": dict.fromkeys(("group", "kind", "name")),
                "requirements": dict.fromkeys(("key", "operator", "values", "minValues")),
                "taints": dict.fromkeys(("key", "value", "effect")),
                "startupTaints": dict.fromkeys(("key", "value", "effect")),
                "expireAfter": None,
                "terminationGracePeriod": None,
            },
        },
        "disruption": {
            "consolidationPolicy": None,
            "consolidateAfter": None,
            "budgets": dict.fromkeys(("nodes", "reasons", "schedule", "duration")),
        },
        "limits": _ANY,
        "weight": None,
    },
    # karpenter.sh, "NodeClasses" (v1)
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): {
        "amiSelectorTerms": {**_TERMS, "alias": None, "owner": None, "ssmParameter": None},
        "subnetSelectorTerms": _TERMS,
        "securityGroupSelectorTerms": _TERMS,
        **dict.fromkeys(("role", "instanceProfile", "amiFamily", "userData", "detailedMonitoring")),
        "blockDeviceMappings": {
            "deviceName": None,
            "rootVolume": None,
            "ebs": dict.fromkeys(
                (
                    *("volumeSize", "volumeType", "encrypted", "deleteOnTermination", "iops", "kmsKeyID"),
                    *("throughput", "snapshotID", "volumeInitializationRate"),
                )
            ),
        },
        "metadataOptions": dict.fromkeys(
            ("httpEndpoint", "httpTokens", "httpPutResponseHopLimit", "httpProtocolIPv6")
        ),
        "instanceStorePolicy": None,
        "kubelet": {"maxPods": None, "kubeReserved": dict.fromkeys(("cpu", "memory", "ephemeral-storage"))},
        "tags": _ANY,
    },
    # kueue.sigs.k8s.io, "Kueue v1beta2 API"
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): {
        "nodeLabels": _ANY,
        "nodeTaints": dict.fromkeys(("key", "value", "effect")),
        "tolerations": dict.fromkeys(("key", "operator", "value", "effect")),
        "topologyName": None,
    },
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): {
        "namespaceSelector": {"matchLabels": _ANY, "matchExpressions": _ANY},
        "resourceGroups": {
            "coveredResources": None,
            "flavors": {
                "name": None,
                "resources": dict.fromkeys(("name", "nominalQuota", "borrowingLimit", "lendingLimit")),
            },
        },
        **dict.fromkeys(("queueingStrategy", "cohortName", "stopPolicy")),
    },
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): {"clusterQueue": None, "stopPolicy": None},
    # kubernetes.io, "Volume Snapshots" (v1)
    ("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent"): {
        **dict.fromkeys(("deletionPolicy", "driver", "volumeSnapshotClassName", "sourceVolumeMode")),
        "source": dict.fromkeys(("snapshotHandle", "volumeHandle")),
        "volumeSnapshotRef": dict.fromkeys(("name", "namespace")),
    },
    ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"): {
        "source": dict.fromkeys(("volumeSnapshotContentName", "persistentVolumeClaimName")),
        "volumeSnapshotClassName": None,
    },
    # secrets-store-csi-driver.sigs.k8s.io, and its AWS provider
    ("secrets-store.csi.x-k8s.io/v1", "SecretProviderClass"): {
        "provider": None,
        "parameters": dict.fromkeys(
            ("objects", "region", "usePodIdentity", "failoverRegion", "pathTranslation")
        ),
        "secretObjects": {
            "secretName": None,
            "type": None,
            "labels": _ANY,
            "data": dict.fromkeys(("objectName", "key")),
        },
    },
    # keda.sh, "Authentication" and "ScaledObject specification"
    ("keda.sh/v1alpha1", "TriggerAuthentication"): {
        "podIdentity": dict.fromkeys(("provider", "identityId", "roleArn", "identityOwner")),
        "awsSecretManager": {
            "region": None,
            "podIdentity": dict.fromkeys(("provider",)),
            "secrets": dict.fromkeys(("parameter", "name", "versionId", "versionStage")),
        },
    },
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "scaleTargetRef": dict.fromkeys(("apiVersion", "kind", "name", "envSourceContainerName")),
        **dict.fromkeys(
            ("minReplicaCount", "maxReplicaCount", "idleReplicaCount", "pollingInterval", "cooldownPeriod")
        ),
        "advanced": {
            "restoreToOriginalReplicaCount": None,
            "horizontalPodAutoscalerConfig": {
                "name": None,
                "behavior": {
                    way: dict.fromkeys(
                        ("stabilizationWindowSeconds", "policies", "selectPolicy", "tolerance")
                    )
                    for way in ("scaleDown", "scaleUp")
                },
            },
        },
        "fallback": dict.fromkeys(("failureThreshold", "replicas", "behavior")),
        "triggers": {
            **dict.fromkeys(("type", "name", "metricType", "useCachedMetrics")),
            **{"metadata": _ANY, "authenticationRef": {"name": None}},
        },
    },
}
CUSTOM_WITHOUT_SCHEMA: Final = frozenset(kind for _, kind in _KEYS)


def validation_error(manifest: Mapping[str, Any], version: str) -> str:
    """Return why an API server of ``version`` would reject a manifest; empty if it would not."""
    key = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
    if key in _TRAINER:
        return _trainer_error(manifest, _TRAINER[key])
    if key in _KEYS:
        shape = {"apiVersion": None, "kind": None, "metadata": _META, "spec": _KEYS[key]}
        missing = [f"{key[1]}: {part} is missing" for part in ("metadata", "spec") if part not in manifest]
        return "; ".join([*missing, *_unknown(manifest, shape, key[1]), *_restricted(manifest)])
    try:
        kubernetes_validate.validate(dict(manifest), version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return f"{key[0]} {key[1]} is not known in {version}"
    except kubernetes_validate.ValidationError as error:
        return f"{key[1]}: {str(error).splitlines()[0]}"
    return ""


def _restricted(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield labels that Karpenter does not allow on nodes.

    Source: NodePool CRD (karpenter-provider-aws, pkg/apis/crds/karpenter.sh_nodepools.yaml), without
    the exceptions for well-known labels, which nothing here sets.
    """
    if manifest["kind"] != "NodePool":
        return
    for label in manifest.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}):
        if label.partition("/")[0].endswith(("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws")):
            yield f"NodePool.spec.template.metadata.labels.{label} is of a restricted domain"


def _trainer_error(manifest: Mapping[str, Any], model: str) -> str:
    # Imported on use: the package loads all of its models, which takes a second.
    import kubeflow_trainer_api.models as trainer

    try:
        read = getattr(trainer, model).from_json(json.dumps(manifest))
    except ValueError as error:
        return f"{manifest['kind']}: {error}"
    return "; ".join(_dropped(manifest, read.to_dict(), str(manifest["kind"])))


def _dropped(source: Any, parsed: Any, path: str) -> Iterator[str]:
    """Yield the keys that a model dropped because it does not know them."""
    if isinstance(source, Mapping):
        for key, value in source.items():
            if not isinstance(parsed, Mapping) or key not in parsed:
                yield f"{path}.{key} is not known"
            else:
                yield from _dropped(value, parsed[key], f"{path}.{key}")
    elif isinstance(source, list):
        for number, value in enumerate(source):
            yield from _dropped(value, parsed[number], f"{path}[{number}]")


def _unknown(source: Any, shape: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    if isinstance(source, list):
        for number, value in enumerate(source):
            yield from _unknown(value, shape, f"{path}[{number}]")
    elif isinstance(source, Mapping) and shape is not None and "" not in shape:
        for key, value in source.items():
            if key not in shape:
                yield f"{path}.{key} is not known"
            else:
                yield from _unknown(value, shape[key], f"{path}.{key}")
    elif isinstance(source, Mapping) and shape is None:
        yield f"{path} must be a value, not an object"
