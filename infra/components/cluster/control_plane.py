"""A cluster's control plane: access, logs and encryption of secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components.cluster.objects import ClusterEndpoint
from infra.components.cluster.roles import service_role
from infra.components.network.network import Network
from infra.iam import cluster_statements
from infra.schema import Kubernetes
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.scope import Scope

_POLICIES: Final = {
    "admin": "AmazonEKSClusterAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}


@dataclass(frozen=True)
class ControlPlaneArgs:
    """``settings`` are those of any cluster, ``created`` those of a cluster that the stack creates."""

    scope: Scope
    settings: Kubernetes
    created: CreatedCluster
    network: Network
    log_retention_days: int


class ControlPlane(pulumi.ComponentResource):
    """An EKS cluster with its role, log group, access entries and, without a customer's key, a KMS key.

    ``endpoint`` depends on the access entries, so objects are created after access is granted.
    """

    name: pulumi.Output[str]
    endpoint: ClusterEndpoint

    def __init__(self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the control plane."""
        super().__init__("gpu-spot:infra:ControlPlane", name, None, opts)
        self._scope, self._child = args.scope, pulumi.ResourceOptions(parent=self)
        scope, created, cluster = args.scope, args.created, args.settings.cluster
        role = service_role(
            scope, "control-plane", "eks.amazonaws.com", cluster_statements.CONTROL_PLANE, self._child
        )
        # EKS would create it without a retention period.
        logs = aws.cloudwatch.LogGroup(
            scope.name("control-plane"),
            name=f"/aws/eks/{cluster}/cluster",
            retention_in_days=args.log_retention_days,
            kms_key_id=scope.kms_key_arn,
            tags=scope.tags(scope.name("control-plane")),
            opts=self._child,
        )
        eks_cluster = aws.eks.Cluster(
            name,
            name=cluster,
            version=args.settings.version,
            role_arn=role.arn,
            vpc_config=aws.eks.ClusterVpcConfigArgs(
                subnet_ids=list(args.network.subnet_ids.values()),
                endpoint_private_access=True,
                endpoint_public_access=bool(created.public_cidrs),
                public_access_cidrs=list(created.public_cidrs) or None,
            ),
            access_config=aws.eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            encryption_config=aws.eks.ClusterEncryptionConfigArgs(
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(
                    key_arn=scope.kms_key_arn or self._key()
                ),
                resources=["secrets"],
            ),
            enabled_cluster_log_types=list(created.logs),
            # Add-ons are resources of the stack; EKS would own those that it installs itself.
            bootstrap_self_managed_addons=False,
            # The default, extended support, costs six times as much (EKS guide, "Upgrade policy").
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions(parent=self, protect=scope.protect or None, depends_on=[logs]),
        )
        self.name = eks_cluster.name
        entries = [
            self._grant_access(eks_cluster, number, access.role, access.access_policy)
            for number, access in enumerate(created.access)
        ]
        self.endpoint = ClusterEndpoint(
            cluster, eks_cluster.endpoint, eks_cluster.certificate_authority.data, entries
        )
        self.register_outputs({"name": self.name})

    def _key(self) -> pulumi.Output[str]:
        name = self._scope.name("cluster-secrets")
        key = aws.kms.Key(
            name,
            description="Secrets of a cluster",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            tags=self._scope.tags(name),
            opts=self._scope.stateful_options(self),
        )
        arn: pulumi.Output[str] = key.arn
        return arn

    def _grant_access(
        self, cluster: aws.eks.Cluster, number: int, role: str, access_policy: str
    ) -> pulumi.Resource:
        name = self._scope.name("access", str(number))
        entry = aws.eks.AccessEntry(
            name,
            cluster_name=cluster.name,
            principal_arn=role,
            type="STANDARD",
            tags=self._scope.tags(name),
            opts=self._child,
        )
        policy = f":eks::aws:cluster-access-policy/{_POLICIES[access_policy]}"
        association: pulumi.Resource = aws.eks.AccessPolicyAssociation(
            name,
            cluster_name=cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=pulumi.Output.concat("arn:", self._scope.partition, policy),
            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self._child,
        )
        return association
