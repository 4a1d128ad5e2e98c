"""EKS's add-ons: what nodes need to be ready, and the drivers of what pods read and write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.iam import cluster_statements
from infra.iam.statement import Statement, lend_key, with_key
from infra.schema.cluster.own_cluster import OwnCluster
from infra.scope import Scope

_SYSTEM: Final = "kube-system"
BEFORE_NODES: Final = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Run on each node and make it ready; the others need a node that is."""
_SECRETS: Final = "aws-secrets-store-csi-driver-provider"
_CONFIGURATION: Final[dict[str, Any]] = {
    # Off by default, and workers whose queue's URL lies in a secret never start then.
    # Else two answer however many nodes ask (EKS guide, "Scale CoreDNS Pods for high DNS traffic").
    "coredns": {"autoScaling": {"enabled": True}},
    _SECRETS: {"secrets-store-csi-driver": {"syncSecret": {"enabled": True}, "enableSecretRotation": True}},
}


@dataclass(frozen=True)
class AddonsArgs:
    """``names`` are EKS's; they wait for ``ready``. ``checkpoints`` is what the EFS driver may mount."""

    scope: Scope
    own: OwnCluster
    cluster: str
    made: pulumi.Input[str]
    names: Sequence[str]
    ready: Sequence[pulumi.Resource] = ()
    checkpoints: Sequence[Statement] = field(default=())


class Addons(pulumi.ComponentResource):
    """Produces: the add-ons, and a role for each that calls AWS, by EKS Pod Identity."""

    made: list[pulumi.Resource]

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the add-ons."""
        super().__init__("gpu-spot:infra:Addons", name, None, opts)
        self.made = [self._addon(args, addon) for addon in args.names]
        self.register_outputs({})

    def _addon(self, args: AddonsArgs, addon: str) -> pulumi.Resource:
        scope, own = args.scope, _CONFIGURATION.get(addon)
        name = scope.name("addon", addon, limit=100)
        made: pulumi.Resource = aws.eks.Addon(
            name,
            cluster_name=args.made,
            addon_name=addon,
            addon_version=args.own.addon_versions.get(addon),  # type: ignore[call-overload]
            configuration_values=json.dumps(own) if own else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.ready, *self._identity(args, addon)]),
        )
        return made

    def _identity(self, args: AddonsArgs, addon: str) -> list[pulumi.Resource]:
        """Declare who an add-on's pods are: nobody, unless they call AWS."""
        scope = args.scope
        volumes = [*lend_key(scope), *with_key(scope, ["ec2"])]
        known: dict[str, tuple[str, Sequence[Statement], Sequence[str]]] = {
            "vpc-cni": ("aws-node", (), cluster_statements.NETWORK),
            "aws-ebs-csi-driver": ("ebs-csi-controller-sa", volumes, cluster_statements.VOLUMES),
        }
        if args.checkpoints:
            # Volumes are static: the driver's controller makes nothing, and has no role.
            known["aws-efs-csi-driver"] = ("efs-csi-node-sa", args.checkpoints, ())
        if addon not in known:
            return []
        account, allowed, managed = known[addon]
        identity = PodIdentityArgs(scope, args.cluster, _SYSTEM, account, allowed, managed, made=args.made)
        return [PodIdentity(scope.name("addon", account), identity, pulumi.ResourceOptions(parent=self))]
