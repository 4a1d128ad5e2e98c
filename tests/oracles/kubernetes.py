"""Kubernetes' own schemas over objects: what a strict API server would refuse of a declared version.

Core objects by kubernetes-validate's strict schemas, Trainer's by the models of its API package, which drop
unknown keys without a word, so that they are looked for here. For the other custom resources no package at
hand has a schema: group, version, kind and keys are held to the lists below, taken from their documentation,
and ``CUSTOM_WITHOUT_SCHEMA`` says which.
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
"""Keys of the user's own: labels, parameters, limits."""
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
                    way: dict.fromkeys(("stabilizationWindowSeconds", "policies", "selectPolicy"))
                    for way in ("scaleDown", "scaleUp")
                },
            },
        },
        "triggers": {"type": None, "metadata": _ANY, "authenticationRef": {"name": None}, "name": None},
    },
}
CUSTOM_WITHOUT_SCHEMA: Final = frozenset(kind for _, kind in _KEYS)


def refusal(told: Mapping[str, Any], version: str) -> str:
    """Return why an API server of ``version`` would refuse an object; empty where it would not."""
    key = (str(told.get("apiVersion")), str(told.get("kind")))
    if key in _TRAINER:
        return _of_trainer(told, _TRAINER[key])
    if key in _KEYS:
        shape = {"apiVersion": None, "kind": None, "metadata": _META, "spec": _KEYS[key]}
        lacking = [f"{key[1]}: {one} is missing" for one in ("metadata", "spec") if one not in told]
        return "; ".join([*lacking, *_unknown(told, shape, key[1]), *_restricted(told)])
    try:
        kubernetes_validate.validate(dict(told), version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return f"{key[0]} {key[1]} is not known in {version}"
    except kubernetes_validate.ValidationError as error:
        return f"{key[1]}: {str(error).splitlines()[0]}"
    return ""


def _restricted(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels that Karpenter allows on no node.

    The rules of NodePool's CRD (karpenter-provider-aws, pkg/apis/crds/karpenter.sh_nodepools.yaml), without
    their exceptions for well-known labels, which nothing here sets.
    """
    if told["kind"] != "NodePool":
        return
    for label in told.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}):
        if label.partition("/")[0].endswith(("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws")):
            yield f"NodePool.spec.template.metadata.labels.{label} is of a restricted domain"


def _of_trainer(told: Mapping[str, Any], model: str) -> str:
    # Imported where it is asked: the package loads all of its models, a second of each collection.
    import kubeflow_trainer_api.models as trainer

    try:
        read = getattr(trainer, model).from_json(json.dumps(told))
    except ValueError as error:
        return f"{told['kind']}: {error}"
    return "; ".join(_dropped(told, read.to_dict(), str(told["kind"])))


def _dropped(told: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield what a model did not keep: it knows no such key."""
    if isinstance(told, Mapping):
        for key, value in told.items():
            if not isinstance(kept, Mapping) or key not in kept:
                yield f"{path}.{key} is not known"
            else:
                yield from _dropped(value, kept[key], f"{path}.{key}")
    elif isinstance(told, list):
        for number, value in enumerate(told):
            yield from _dropped(value, kept[number], f"{path}[{number}]")


def _unknown(told: Any, shape: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    if isinstance(told, list):
        for number, value in enumerate(told):
            yield from _unknown(value, shape, f"{path}[{number}]")
    elif isinstance(told, Mapping) and shape is not None and "" not in shape:
        for key, value in told.items():
            if key not in shape:
                yield f"{path}.{key} is not known"
            else:
                yield from _unknown(value, shape[key], f"{path}.{key}")
    elif isinstance(told, Mapping) and shape is None:
        yield f"{path} is an object, allowed: a value"
