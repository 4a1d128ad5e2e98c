"""What stands in a cluster: the rendered objects, each a resource of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.scope import Scope

_LOGICAL: Final = 253
"""Characters. Logical names are no physical ones here: objects have the names that they are rendered with."""
_NOT_AWAITED: Final = frozenset({"Deployment", "Job"})
"""The engine would wait until a Deployment has its nodes and a Job has ended (pulumi-kubernetes 417)."""
_SKIP_AWAIT: Final = {"pulumi.com/skipAwait": "true"}


@dataclass(frozen=True)
class Reached:
    """How a cluster is reached. ``ready`` is what must be there before objects are."""

    name: str
    endpoint: pulumi.Input[str]
    authority: pulumi.Input[str]
    ready: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True)
class DrawnObject:
    """An object: ``sketch`` names it, ``body`` is all else of it, by key."""

    sketch: Mapping[str, Any]
    body: Mapping[str, pulumi.Input[Any]]


@dataclass(frozen=True)
class ClusterObjectsArgs:
    """``provider`` reaches the cluster; ``objects`` come in the order in which they can be applied."""

    scope: Scope
    provider: pulumi.ProviderResource
    objects: Sequence[DrawnObject]
    ready: Sequence[pulumi.Resource] = ()


class ClusterObjects(pulumi.ComponentResource):
    """Produces: every object, after the namespace and whatever brings their kinds."""

    def __init__(
        self, name: str, args: ClusterObjectsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the objects."""
        super().__init__("gpu-spot:infra:ClusterObjects", name, None, opts)
        before = list(args.ready)
        for one in args.objects:
            made = self._declare(args, one, before)
            if one.sketch["kind"] == "Namespace":
                before = [*before, made]
        self.register_outputs({"count": len(args.objects)})

    def _declare(
        self, args: ClusterObjectsArgs, one: DrawnObject, before: list[pulumi.Resource]
    ) -> pulumi.Resource:
        version, kind = one.sketch["apiVersion"], one.sketch["kind"]
        metadata = dict(one.sketch["metadata"])
        if kind in _NOT_AWAITED:
            metadata["annotations"] = {**metadata.get("annotations", {}), **_SKIP_AWAIT}
        # By its type alone: core and custom kinds are declared in one way, with the keys that YAML has.
        return pulumi.CustomResource(
            f"kubernetes:{version if '/' in version else f'core/{version}'}:{kind}",
            args.scope.name(kind.lower(), metadata["name"], limit=_LOGICAL),
            {"apiVersion": version, "kind": kind, "metadata": metadata, **one.body},
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=before),
        )


def provider(scope: Scope, reached: Reached) -> kubernetes.Provider:
    """Declare the provider of a cluster: whoever runs the engine, by a token that the AWS CLI draws."""
    config = pulumi.Output.all(reached.endpoint, reached.authority).apply(
        lambda known: kube_config(reached.name, scope.region, *known)
    )
    return kubernetes.Provider(
        scope.name("kubernetes"), kubeconfig=config, enable_server_side_apply=True, opts=scope.below
    )


def kube_config(cluster: str, region: str, endpoint: str, authority: str) -> str:
    """Return how a client reaches a cluster of EKS, as JSON, which is YAML, too."""
    token = ["eks", "get-token", "--cluster-name", cluster, "--region", region, "--output", "json"]
    call = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": token}
    place = {"server": endpoint, "certificate-authority-data": authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": place}],
            "users": [{"name": cluster, "user": {"exec": call}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "current-context": cluster,
        }
    )
