"""Objects of a cluster: each rendered manifest is a Pulumi resource."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.scope import Scope

_MAX_LOGICAL_NAME_LENGTH: Final = 253
"""Objects have the names in their manifests, not ones derived from logical names."""
_SKIP_AWAIT_KINDS: Final = frozenset({"Deployment", "Job"})
"""Pulumi would wait until a Deployment has its nodes and a Job has finished (pulumi-kubernetes 417)."""
_SKIP_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
_BEFORE_OTHERS: Final = ("Namespace", "EC2NodeClass", "NodePool")
"""Kinds whose objects are created before those of the kinds after them and of all other kinds, and deleted
after them: pods end first, then their nodes, while the controllers that end nodes still run.

The provider deletes in the foreground, so a NodePool is there until its NodeClaims are gone, which Karpenter
finalizes once their instances are terminated. Source: karpenter, ``nodeclaimtemplate.go``
(``BlockOwnerDeletion``), ``nodeclaim/lifecycle/controller.go`` (``finalize``).
"""
_NODES_END_MINUTES: Final = 45
"""Maximum time to delete a NodePool: a worker may finish its request (``pods.NODE_GRACE_SECONDS``)."""
_REPLACED_FOR: Final[Mapping[str, Sequence[str]]] = {
    "Job": tuple(
        f"spec.{key}"
        for key in ("backoffLimitPerIndex", "completionMode", "podFailurePolicy", "successPolicy")
    ),
    "TrainJob": ("spec",),
}
"""Paths of immutable fields for which pulumi-kubernetes updates the object, and a cluster would refuse it.

Sources: Kubernetes, ``pkg/apis/batch/validation``, ``ValidateJobSpecUpdate``; pulumi-kubernetes,
``provider/pkg/provider/diff.go``; Kubeflow Trainer, "TrainJob" (``runtimeRef`` is immutable).
"""


@dataclass(frozen=True)
class ClusterEndpoint:
    """Address of a cluster. Objects in it are created after ``depends_on``."""

    name: pulumi.Input[str]
    endpoint: pulumi.Input[str]
    authority: pulumi.Input[str]
    depends_on: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True)
class KubernetesObject:
    """A manifest: all of it with placeholders for AWS's values in ``header``, the values in ``body``."""

    header: Mapping[str, Any]
    body: Mapping[str, pulumi.Input[Any]]


@dataclass(frozen=True)
class ClusterObjectsArgs:
    """``provider`` is the cluster's; ``objects`` are in the order in which they can be applied."""

    scope: Scope
    provider: pulumi.ProviderResource
    objects: Sequence[KubernetesObject]
    depends_on: Sequence[pulumi.Resource] = ()


class ClusterObjects(pulumi.ComponentResource):
    """All objects, created after ``depends_on`` and in the order of ``_BEFORE_OTHERS``."""

    def __init__(
        self, name: str, args: ClusterObjectsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the objects."""
        super().__init__("gpu-spot:infra:ClusterObjects", name, None, opts)
        depends_on = list(args.depends_on)
        for stage in range(len(_BEFORE_OTHERS) + 1):
            objects = [item for item in args.objects if _stage(item.header["kind"]) == stage]
            depends_on += [self._declare(args, item, list(depends_on)) for item in objects]
        self.register_outputs({"count": len(args.objects)})

    def _declare(
        self, args: ClusterObjectsArgs, item: KubernetesObject, depends_on: list[pulumi.Resource]
    ) -> pulumi.Resource:
        version, kind = item.header["apiVersion"], item.header["kind"]
        metadata = dict(item.header["metadata"])
        if kind in _SKIP_AWAIT_KINDS:
            metadata["annotations"] = {**metadata.get("annotations", {}), **_SKIP_AWAIT}
        # Cluster-scoped names and the default namespace have the stack's name, logical names do not.
        short = metadata["name"].removeprefix(args.scope.prefix.lower().rstrip("-")).lstrip(".")
        timeouts = pulumi.CustomTimeouts(delete=f"{_NODES_END_MINUTES}m") if kind == "NodePool" else None
        # An omitted field is taken back from the cluster, and one worker left, if the scaler never set it.
        is_scaled = kind == "Deployment" and "replicas" not in item.header["spec"]
        # By type token: built-in and custom kinds alike, with the keys of the manifest.
        return pulumi.CustomResource(
            f"kubernetes:{version if '/' in version else f'core/{version}'}:{kind}",
            args.scope.name(kind.lower(), *filter(None, [short]), limit=_MAX_LOGICAL_NAME_LENGTH),
            {"apiVersion": version, "kind": kind, "metadata": metadata, **item.body},
            pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                depends_on=depends_on,
                replace_on_changes=list(_REPLACED_FOR.get(kind, ())),
                delete_before_replace=True if kind in _REPLACED_FOR else None,
                ignore_changes=["spec.replicas"] if is_scaled else None,
                custom_timeouts=timeouts,
            ),
        )


def _stage(kind: str) -> int:
    return _BEFORE_OTHERS.index(kind) if kind in _BEFORE_OTHERS else len(_BEFORE_OTHERS)


def provider(scope: Scope, cluster: ClusterEndpoint) -> kubernetes.Provider:
    """Declare a cluster's provider, which authenticates with the AWS CLI's token of the current identity."""
    config = pulumi.Output.all(cluster.name, cluster.endpoint, cluster.authority).apply(
        lambda values: kube_config(values[0], scope.region, *values[1:])
    )
    return kubernetes.Provider(
        scope.name("kubernetes"), kubeconfig=config, enable_server_side_apply=True, opts=scope.child_options
    )


def kube_config(cluster: str, region: str, endpoint: str, authority: str) -> str:
    """Return a kubeconfig for an EKS cluster, as JSON, which is valid YAML."""
    token = ["eks", "get-token", "--cluster-name", cluster, "--region", region, "--output", "json"]
    call = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": token}
    server = {"server": endpoint, "certificate-authority-data": authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": server}],
            "users": [{"name": cluster, "user": {"exec": call}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "current-context": cluster,
        }
    )
