"""Effects of changed Kubernetes objects: what certainly ends pods, and what may; the rest is to be looked at.

Sources: Kubernetes, "Deployments" and "Jobs"; pulumi-kubernetes, ``provider/pkg/provider/diff.go``, read on
24 November 2026: a Job's template and a PersistentVolume's driver force a replacement, deleted first. Which
nodes Karpenter replaces because of a pool or node class depends on its budgets, what a chart's version does
on the chart: both are not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_spot.markdown import label
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, may_end, named
from gpu_spot.review.effects.groups import Groups
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.value_diff import value_differences

_ROLLING: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_RUNNING: Final = frozenset({*_ROLLING, "Job", "TrainJob", "Pod", "ReplicaSet", "NodePool", "Namespace"})
"""Kinds whose deletion ends pods."""
_UNUSED_WHEN_NEW: Final = frozenset(
    {
        *(*_RUNNING, "ClusterQueue", "ConfigMap", "EC2NodeClass", "LocalQueue", "PersistentVolume"),
        *("PersistentVolumeClaim", "PodDisruptionBudget", "ResourceFlavor", "Secret", "SecretProviderClass"),
        *("Release", "ServiceAccount", "StorageClass", "TrainingRuntime", "TriggerAuthentication"),
        *("VolumeSnapshot", "VolumeSnapshotClass", "VolumeSnapshotContent"),
        *("Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
"""Kinds that change nothing for running pods when they are created."""
_HARMLESS_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": (
        *("spec.strategy", "spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.paused"),
        "spec.progressDeadlineSeconds",
    ),
    "Job": ("spec.ttlSecondsAfterFinished",),
    "NodePool": ("spec.limits", "spec.weight"),
    "PodDisruptionBudget": ("spec",),
}
"""Paths whose change in place ends no pod."""
_GROWING: Final[Mapping[str, tuple[str, ...]]] = {
    "ClusterQueue": ("nominalQuota",),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}
"""Numbers that end no pod while they grow."""
_UNITS: Final = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def kubernetes_effects(step: EngineStep, groups: Groups) -> Iterator[Effect]:
    """Yield the effects of a changed object."""
    group, paths = groups.of(step), _paths(step)
    rolls = step.kind in _ROLLING and any(path.startswith("spec.template") for path in paths)
    if step.op == "create":
        if step.kind not in _UNUSED_WHEN_NEW and group not in groups.new:
            yield may_end(step, group)
    elif step.op in ("delete", "replace") and step.kind in _RUNNING:
        reasons = [f"because of {', '.join(step.forcing)}"] if step.forcing else []
        reasons += ["the old one is deleted first"] if step.deleted_first else []
        words = f"**all workers ended**: {named(step)} is {step.op}d"
        yield Effect(Severity.ENDS, group, words, tuple(reasons), ends_all=True)
    elif step.op == "update" and rolls:
        words = "**all pods replaced** one after another: another pod template"
        yield Effect(Severity.ENDS, group, words, ends_all=True)
    elif step.op == "update" and step.kind != "Release":
        if paths:
            yield may_end(
                step, group, f"changes ({', '.join(map(label, paths))}): look whether its pods stay"
            )
    else:
        yield may_end(step, group)


def _paths(step: EngineStep) -> list[str]:
    """Return the changed paths that may end pods."""
    return [
        path
        for path, old, new in value_differences(dict(step.old), dict(step.new))
        if not (path.startswith(("metadata.labels", "metadata.annotations")) and "kueue" not in path)
        and not path.startswith(_HARMLESS_PATHS.get(step.kind, ("\0",)))
        and not (path.endswith(_GROWING.get(step.kind, ("\0",))) and _quantity(new) > _quantity(old))
    ]


def _quantity(value: Any) -> float:
    """Return a quantity such as ``27360m`` or ``100528Mi``; NaN, which is above nothing, if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|)", str(value))
    return float(match[1]) * _UNITS[match[2]] if match else math.nan
