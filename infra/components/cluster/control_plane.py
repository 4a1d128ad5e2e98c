"""A cluster's control plane: access, logs and encryption of secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components import fixed
from infra.components.cluster.job_failures import declare_filters
from infra.components.cluster.objects import ClusterEndpoint
from infra.components.cluster.roles import service_role
from infra.components.identity.identity import named_for
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
_FIXED: Final = ["name", "encryptionConfig", "vpcConfig.subnetIds"]
"""Inputs that stay as they were created.

EKS has no operation that renames a cluster, or changes the key of its secrets: ``AssociateEncryptionConfig``
is for clusters without one (EKS API), and the provider calls it for those only (terraform-provider-aws,
``internal/service/eks/cluster.go``, ``resourceClusterUpdate``). The subnets are those of EKS's own network
interfaces: new ones must be in the zones that the cluster was created with, while nodes may be in any subnet
of the VPC (EKS guide, "Amazon EKS VPC and subnet requirements and considerations").
"""


def _refuse_version(update: pulumi.ResourceHookArgs) -> None:
    """Refuse a version that EKS does, in the preview: back, or several minor versions at once.

    Source: EKS user guide, "Update existing cluster to new Kubernetes version".

    Raises:
        pulumi.RunError: the version.
    """
    old, new = (str((inputs or {}).get("version")) for inputs in (update.old_inputs, update.new_inputs))
    steps = int(new.partition(".")[2]) - int(old.partition(".")[2])
    if steps not in (0, 1):
        raise pulumi.RunError(
            f"gpu-spot:kubernetes.version must be {old} or the next minor version, not {new}: EKS updates "
            "a cluster by one minor version at a time, and goes back by none"
        )


@dataclass(frozen=True)
class ControlPlaneArgs:
    """``settings`` are those of any cluster, ``created`` those of a cluster that the stack creates.

    ``watched_jobs``: jobs whose failure the audit log shows.
    """

    scope: Scope
    settings: Kubernetes
    created: CreatedCluster
    network: Network
    log_retention_days: int
    watched_jobs: Sequence[str] = ()


class ControlPlane(pulumi.ComponentResource):
    """An EKS cluster with its role, log group, access entries and, without a customer's key, a KMS key.

    ``endpoint`` depends on the access entries, so objects are created after access is granted.
    """

    name: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    endpoint: ClusterEndpoint

    def __init__(self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the control plane."""
        super().__init__("gpu-spot:infra:ControlPlane", name, None, opts)
        self._scope, self._child = args.scope, pulumi.ResourceOptions(parent=self)
        scope, created, cluster = args.scope, args.created, args.settings.cluster
        role, policies = service_role(
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
        declare_filters(
            scope, args.settings.namespace_of(scope.stack), args.watched_jobs, logs.name, self._child
        )
        key = scope.kms_key_arn or self._key()
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
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(key_arn=key), resources=["secrets"]
            ),
            enabled_cluster_log_types=list(created.logs),
            # Add-ons are resources of the stack; EKS would own those that it installs itself.
            bootstrap_self_managed_addons=False,
            # The default, extended support, costs six times as much (EKS guide, "Upgrade policy").
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=scope.protect or None,
                depends_on=[logs, *policies],
                ignore_changes=_FIXED,
                hooks=pulumi.ResourceHookBinding(
                    before_update=[
                        pulumi.ResourceHook(
                            "kubernetes-version",
                            _refuse_version,
                            opts=pulumi.ResourceHookOptions(on_dry_run=True),
                        )
                    ]
                ),
            ),
        )
        self.name = _checked_name(eks_cluster, args, key)
        self.security_group_id = eks_cluster.vpc_config.cluster_security_group_id.apply(str)
        entries = [self._grant_access(access.role, access.access_policy) for access in created.access]
        self.endpoint = ClusterEndpoint(
            self.name, eks_cluster.endpoint, eks_cluster.certificate_authority.data, entries
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

    def _grant_access(self, role: str, access_policy: str) -> pulumi.Resource:
        name = named_for(self._scope.name("access"), role)
        entry = aws.eks.AccessEntry(
            name,
            cluster_name=self.name,
            principal_arn=role,
            type="STANDARD",
            tags=self._scope.tags(self._scope.name("access")),
            opts=self._child,
        )
        policy = f":eks::aws:cluster-access-policy/{_POLICIES[access_policy]}"
        association: pulumi.Resource = aws.eks.AccessPolicyAssociation(
            name,
            cluster_name=self.name,
            principal_arn=entry.principal_arn,
            policy_arn=pulumi.Output.concat("arn:", self._scope.partition, policy),
            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self._child,
        )
        return association


def _checked_name(
    cluster: aws.eks.Cluster, args: ControlPlaneArgs, key: pulumi.Input[str]
) -> pulumi.Output[str]:
    """Return the cluster's name; the output raises ``pulumi.RunError`` for a change that EKS cannot make."""
    name = args.settings.cluster
    owner = f"cluster {name!r}"
    same = fixed.unchanged(
        "kubernetes.cluster",
        name,
        cluster.name,
        "the cluster",
        "remove all entries on Kubernetes first, or make a second stack",
    )
    same_key = fixed.unchanged(
        "kmsKeyArn",
        key,
        cluster.encryption_config.apply(lambda config: config.provider.key_arn if config else None),
        owner,
        "make a second stack, because EKS never changes the key of a cluster's secrets",
    )
    subnets = args.network.remaining(cluster.vpc_config.subnet_ids, owner)
    return pulumi.Output.all(same, same_key, subnets).apply(lambda values: str(values[0]))
