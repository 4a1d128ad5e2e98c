"""Effects of changed Kubernetes objects on pods.

Sources: Kubernetes, "Deployments" and "Jobs"; Karpenter, "Disruption", section "Drift" (static and behavioral
fields of NodePool and EC2NodeClass; budgets); pulumi-kubernetes, ``provider/pkg/provider/diff.go``, read on
24 November 2026: a Job's template and a PersistentVolume's driver force a replacement, deleted first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, may_end, named, workers
from gpu_spot.review.effects.groups import Groups
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.text import code, plural
from gpu_spot.review.value_diff import value_differences
from gpu_spot.review.values import grows, has_unknown, items, mapping, number

_GPU: Final = "nvidia.com/gpu"
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

_UNITS: Final = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_GROWING: Final[Mapping[str, tuple[str, ...]]] = {
    "ClusterQueue": ("nominalQuota",),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}
"""Numbers that end no pod while they grow."""


@dataclass(frozen=True)
class Pools:
    """The node pools of a preview; those that are not in it are missing."""

    steps: Sequence[EngineStep]

    def of_class(self, name: str) -> list[EngineStep]:
        """Return the pools whose nodes are of a node class."""
        return [step for step in self.steps if _node_class(step) == name and step.op != "delete"]

    def of_group(self, group: str, groups: Groups) -> EngineStep | None:
        """Return the pool of a group; None if it is not in the preview."""
        return next((step for step in self.steps if groups.of(step) == group), None)


def find_pools(steps: Sequence[EngineStep]) -> Pools:
    """Return the node pools of a preview."""
    return Pools([step for step in steps if step.kind == "NodePool" and step.type.startswith("kubernetes:")])


def kubernetes_effects(step: EngineStep, groups: Groups, pools: Pools) -> Iterator[Effect]:
    """Yield the effects of a changed object."""
    group = groups.of(step)
    if step.op == "create":
        if step.kind not in _UNUSED_WHEN_NEW and group not in groups.new:
            yield may_end(step, group)
    elif step.op in ("delete", "replace"):
        yield from _removed(step, group, groups)
    elif step.op != "update":
        yield may_end(step, group)
    else:
        yield from _updated(step, group, groups, pools)


def _removed(step: EngineStep, group: str, groups: Groups) -> Iterator[Effect]:
    how = "deleted" if step.op == "delete" else "replaced"
    if step.kind == "Job":
        count = number(mapping(step.old.get("spec")).get("parallelism", 1))
        words = f"**{workers(count)} ended**: {named(step)}, the run that trains now, is {how}"
        yield Effect(Severity.ENDS, group, words, _because(step), count, ends_all=True)
    elif step.kind in _RUNNING:
        count = groups.pods.get(group)
        words = f"**{workers(count)} ended**: {named(step)} is {how}"
        yield Effect(Severity.ENDS, group, words, _because(step), count, ends_all=True)
    elif step.kind == "PodDisruptionBudget":
        yield Effect(Severity.WATCH, group, f"{named(step)} is {how}: evictions are unlimited meanwhile")
    else:
        yield may_end(step, group)


def _because(step: EngineStep) -> tuple[str, ...]:
    reasons = [f"because of {', '.join(step.forcing)}"] if step.forcing else []
    return (*reasons, *(["the old one is deleted first"] if step.deleted_first else []))


def _updated(step: EngineStep, group: str, groups: Groups, pools: Pools) -> Iterator[Effect]:
    if step.kind == "Release":
        yield may_end(step, group, _chart(step))
        return
    paths = [path for path, _, _ in value_differences(dict(step.old), dict(step.new))]
    paths = [path for path in paths if not _is_label(path)]
    paths = [path for path in paths if not path.startswith(_HARMLESS_PATHS.get(step.kind, ("\0",)))]
    if not paths:
        return
    if has_unknown(step.new.get("spec")) and not _is_readable(step):
        yield may_end(step, group, "is known after the update")
    elif step.kind in _ROLLING:
        yield from _workload(step, group, groups, pools, paths)
    elif step.kind == "Job":
        yield from _job(step, group, paths)
    elif step.kind == "NodePool":
        yield from _drift(step, group, groups, [step], _pool_drifts(step, paths))
    elif step.kind == "EC2NodeClass":
        name = str(mapping(step.new.get("metadata")).get("name", ""))
        drifts = [path for path in paths if not _keeps_subnets(step, path)]
        yield from _drift(step, group, groups, pools.of_class(name), drifts)
    elif not (step.kind in _GROWING and _grows(step, _GROWING[step.kind])):
        yield may_end(step, group)


def _is_readable(step: EngineStep) -> bool:
    """Return whether at least the pod template can be compared."""
    return step.kind in _ROLLING and isinstance(mapping(step.new.get("spec")).get("template"), dict)


def _is_label(path: str) -> bool:
    return path.startswith(("metadata.labels", "metadata.annotations")) and "kueue" not in path


def _chart(step: EngineStep) -> str:
    old, new = (inputs.get("version", "the newest") for inputs in (step.old, step.new))
    version = f"from version {old} to {new}" if old != new else f"({', '.join(step.changed)})"
    chart = code(str(step.new.get("chart", step.name)))
    return f"changes chart {chart} {version}: what that does to running pods is not in the preview"


def _workload(
    step: EngineStep, group: str, groups: Groups, pools: Pools, paths: Sequence[str]
) -> Iterator[Effect]:
    old, new = mapping(step.old.get("spec")), mapping(step.new.get("spec"))
    before, after = number(old.get("replicas")), number(new.get("replicas"))
    if any(path.startswith("spec.template") for path in paths):
        count = "all pods" if before is None else plural(before, "pod")
        words = f"**{count} replaced** one after another: another pod template"
        yield Effect(
            Severity.ENDS, group, words, _roll_out(step, group, groups, pools), before, ends_all=True
        )
    if "spec.replicas" in paths:
        if before is None or after is None:
            yield may_end(step, group, "is scaled by another controller from now on, or no longer")
        elif before > after:
            words = f"**{workers(before - after)} removed**: {before} replicas become {after}"
            yield Effect(Severity.ENDS, group, words, count=before - after, ends_all=after == 0)
        else:
            yield Effect(Severity.LATER, group, f"{workers(after - before)} added")
    remaining = [path for path in paths if not path.startswith(("spec.template", "spec.replicas"))]
    if remaining:
        yield may_end(step, group, f"changes ({', '.join(remaining)})")


def _roll_out(step: EngineStep, group: str, groups: Groups, pools: Pools) -> tuple[str, ...]:
    rolling = mapping(mapping(mapping(step.new.get("spec")).get("strategy")).get("rollingUpdate"))
    surge, unavailable = rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")
    return (
        f"{_text(surge)} more at a time, {_text(unavailable)} fewer",
        f"room for the surge in the node pool: {_room(step, group, groups, pools, surge)}",
    )


def _room(step: EngineStep, group: str, groups: Groups, pools: Pools, surge: Any) -> str:
    """Return whether the pool's limit holds the surge, in words."""
    spec = mapping(step.new.get("spec"))
    pool = pools.of_group(group, groups)
    limit = (
        number(mapping(mapping(pool.new or pool.old).get("spec")).get("limits", {}).get(_GPU))
        if pool
        else None
    )
    pods, more = number(spec.get("replicas")), number(surge)
    containers = items(mapping(mapping(spec.get("template")).get("spec")).get("containers"))
    gpus_per_pod = sum(
        number(mapping(mapping(item.get("resources")).get("limits")).get(_GPU)) or 0 for item in containers
    )
    if limit is None or pods is None or more is None or not gpus_per_pod:
        return "not known"
    needed = (pods + more) * gpus_per_pod
    return f"{'yes' if needed <= limit else '**no**'}, {needed} of at most {limit} GPUs"


def _job(step: EngineStep, group: str, paths: Sequence[str]) -> Iterator[Effect]:
    if "spec.suspend" in paths and mapping(step.new.get("spec")).get("suspend") is True:
        yield Effect(
            Severity.ENDS, group, f"**all workers ended**: {named(step)} is suspended", ends_all=True
        )
    else:
        yield may_end(step, group, f"changes ({', '.join(paths)}), which a cluster may refuse")


def _pool_drifts(step: EngineStep, paths: Sequence[str]) -> list[str]:
    """Return the paths by which nodes drift from their pool."""
    return [
        path
        for path in paths
        if path.startswith("spec.template")
        and not (path.startswith("spec.template.spec.requirements") and _allows_more(step))
    ] + [path for path in paths if path.startswith("spec.disruption") and not _is_budget(path)]


def _is_budget(path: str) -> bool:
    return path.startswith("spec.disruption.budgets")


def _allows_more(step: EngineStep) -> bool:
    old, new = (
        {
            str(mapping(item).get("key")): mapping(item)
            for item in items(
                mapping(mapping(mapping(inputs.get("spec")).get("template")).get("spec")).get("requirements")
            )
        }
        for inputs in (step.old, step.new)
    )
    return new.keys() <= old.keys() and all(
        key not in new
        or (
            item.get("operator") == new[key].get("operator") == "In"
            and grows(item.get("values"), new[key].get("values"))
        )
        for key, item in old.items()
    )


def _keeps_subnets(step: EngineStep, path: str) -> bool:
    key = "subnetSelectorTerms"
    old, new = (mapping(inputs.get("spec")).get(key) for inputs in (step.old, step.new))
    return path.startswith(f"spec.{key}") and grows(old, new)


def _drift(
    step: EngineStep, group: str, groups: Groups, pools: Sequence[EngineStep], paths: Sequence[str]
) -> Iterator[Effect]:
    if not paths:
        return
    if not pools:
        yield may_end(step, group, "changes: which node pools use it is not in the preview")
    for pool in pools:
        of = groups.of(pool)
        if _forbids_drift(pool):
            words = f"{named(step)} changes: nodes that run stay, later ones differ"
            yield Effect(Severity.LATER, of, words)
        else:
            count = groups.pods.get(of)
            words = (
                f"**{workers(count)} moved** to other nodes: Karpenter replaces the nodes of {named(pool)}"
            )
            yield Effect(
                Severity.ENDS, of, words, (f"because of {', '.join(paths[:5])}",), count, ends_all=True
            )


def _forbids_drift(pool: EngineStep) -> bool:
    """Return whether a pool's budgets allow no node to be replaced because it drifted."""
    budgets = items(mapping(mapping(pool.now.get("spec")).get("disruption")).get("budgets"))
    return any(
        mapping(budget).get("nodes") == "0"
        and "schedule" not in mapping(budget)
        and ("reasons" not in mapping(budget) or "Drifted" in items(mapping(budget).get("reasons")))
        for budget in budgets
    )


def _node_class(pool: EngineStep) -> str:
    template = mapping(mapping(pool.now.get("spec")).get("template"))
    return str(mapping(mapping(template.get("spec")).get("nodeClassRef")).get("name", ""))


def _grows(step: EngineStep, keys: tuple[str, ...]) -> bool:
    """Return whether only numbers change, upwards."""
    return all(
        path.endswith(keys) and _quantity(new) > _quantity(old)
        for path, old, new in value_differences(dict(step.old), dict(step.new))
        if not _is_label(path)
    )


def _quantity(value: Any) -> float:
    """Return a quantity such as ``27360m`` or ``100528Mi``; NaN, which is above nothing, if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|)", str(value))
    return float(match[1]) * _UNITS[match[2]] if match else math.nan


def _text(value: Any) -> str:
    count = number(value)
    return str(value) if count is None else plural(count, "pod")
