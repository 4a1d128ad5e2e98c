"""EKS add-ons: those that nodes need to become ready, and storage drivers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.iam import cluster_statements
from infra.iam.statement import Statement, grant_key, use_key
from infra.kubernetes.pods import GPU_TOLERATIONS
from infra.schema import Kubernetes
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.scope import Scope

_SYSTEM: Final = "kube-system"
BEFORE_NODES: Final = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Add-ons that make a node ready; the others need a ready node."""
SECRETS: Final = "aws-secrets-store-csi-driver-provider"
_AFTER: Final = {"aws-ebs-csi-driver": "snapshot-controller"}
"""Add-ons that start after another. The EBS driver needs the definitions of snapshots (aws-ebs-csi-driver,
docs/install.md)."""
_CONFIGURATION: Final[dict[str, Any]] = {
    # Without autoscaling two pods serve any number of nodes (EKS guide, "Scale CoreDNS Pods for high DNS
    # traffic").
    "coredns": {"autoScaling": {"enabled": True}},
    # Its agent on GPU nodes tolerates no taint by default (eks-node-monitoring-agent, the chart's values).
    "eks-node-monitoring-agent": {"dcgmAgent": {"tolerations": GPU_TOLERATIONS}},
    # Both off by default; a worker whose queue URL is in a secret would never start. The driver tolerates all
    # taints, AWS's provider none (secrets-store-csi-driver-provider-aws 267, and its chart's values).
    SECRETS: {
        "tolerations": GPU_TOLERATIONS,
        "secrets-store-csi-driver": {"syncSecret": {"enabled": True}, "enableSecretRotation": True},
    },
}


@dataclass(frozen=True)
class AddonsArgs:
    """``names`` are EKS's; ``file_system_statements`` are the permissions of the EFS driver to mount."""

    scope: Scope
    settings: Kubernetes
    created: CreatedCluster
    created_cluster_name: pulumi.Input[str]
    names: Sequence[str]
    depends_on: Sequence[pulumi.Resource] = ()
    file_system_statements: Sequence[Statement] = field(default=())


class Addons(pulumi.ComponentResource):
    """Add-ons, with an EKS Pod Identity role for each that calls AWS."""

    addons: list[pulumi.Resource]

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the add-ons."""
        super().__init__("gpu-spot:infra:Addons", name, None, opts)
        by_name: dict[str, pulumi.Resource] = {}
        for addon in args.names:
            first = by_name.get(_AFTER.get(addon, ""))
            by_name[addon] = self._addon(args, addon, [] if first is None else [first])
        self.addons = [*by_name.values()]
        self.register_outputs({})

    def _addon(self, args: AddonsArgs, addon: str, first: Sequence[pulumi.Resource]) -> pulumi.Resource:
        scope, configuration = args.scope, _CONFIGURATION.get(addon)
        name = scope.name("addon", addon, limit=100)
        # EKS leaves an add-on as it is when its cluster is updated, as does the provider without a version.
        default = aws.eks.get_addon_version_output(
            addon_name=addon, kubernetes_version=args.settings.version, opts=scope.invoke_options
        )
        resource: pulumi.Resource = aws.eks.Addon(
            name,
            cluster_name=args.created_cluster_name,
            addon_name=addon,
            addon_version=args.created.addon_versions.get(addon) or default.version,  # type: ignore[call-overload]
            configuration_values=json.dumps(configuration) if configuration else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[*args.depends_on, *first, *self._identity(args, addon)]
            ),
        )
        return resource

    def _identity(self, args: AddonsArgs, addon: str) -> list[pulumi.Resource]:
        """Declare the role of an add-on's pods if they call AWS."""
        scope = args.scope
        volumes = [*grant_key(scope), *use_key(scope, ["ec2"])]
        service_accounts: dict[str, tuple[str, Sequence[Statement], Sequence[str]]] = {
            "vpc-cni": ("aws-node", (), cluster_statements.NETWORK),
            "aws-ebs-csi-driver": ("ebs-csi-controller-sa", volumes, cluster_statements.VOLUMES),
        }
        if args.file_system_statements:
            # Volumes are static: the driver's controller creates nothing and needs no role.
            service_accounts["aws-efs-csi-driver"] = ("efs-csi-node-sa", args.file_system_statements, ())
        if addon not in service_accounts:
            return []
        account, allowed, managed = service_accounts[addon]
        identity = PodIdentityArgs(
            scope,
            args.settings.cluster,
            _SYSTEM,
            account,
            allowed,
            managed,
            created_cluster_name=args.created_cluster_name,
        )
        return [PodIdentity(scope.name("addon", account), identity, pulumi.ResourceOptions(parent=self))]
