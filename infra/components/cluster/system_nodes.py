"""The node group for system pods: DNS, controllers, drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.catalogue.cpu_types import architecture
from infra.components.capacity.launch_options import metadata_options, root_volume, tag_specifications
from infra.components.cluster.roles import service_role
from infra.components.network.network import Network
from infra.iam import cluster_statements
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.scope import Scope

_IMAGES: Final = {"arm64": "AL2023_ARM_64_STANDARD", "x86_64": "AL2023_x86_64_STANDARD"}
_ROOT_GIB: Final = 30


@dataclass(frozen=True)
class SystemNodesArgs:
    """``version`` is that of Kubernetes; ``depends_on`` are the add-ons that nodes need to become ready."""

    scope: Scope
    created: CreatedCluster
    version: str
    cluster: pulumi.Input[str]
    network: Network
    depends_on: Sequence[pulumi.Resource]


class SystemNodes(pulumi.ComponentResource):
    """An On-Demand managed node group with its launch template and role.

    It has no taint, which every chart would have to tolerate. GPU nodes have one that only the entries' pods
    tolerate.
    """

    group: aws.eks.NodeGroup

    def __init__(self, name: str, args: SystemNodesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the node group."""
        super().__init__("gpu-spot:infra:SystemNodes", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name)
        role, policies = service_role(
            scope, "system-nodes", "ec2.amazonaws.com", cluster_statements.NODE, child
        )
        template = aws.ec2.LaunchTemplate(
            name,
            description="Nodes for system pods",
            metadata_options=metadata_options(),
            block_device_mappings=[root_volume(scope, "/dev/xvda", _ROOT_GIB)],
            tag_specifications=tag_specifications(tags, ("instance", "volume")),
            update_default_version=True,
            tags=tags,
            opts=child,
        )
        self.group = aws.eks.NodeGroup(
            name,
            cluster_name=args.cluster,
            node_role_arn=role.arn,
            # Without a release: the newest image when EKS creates the group, or moves it to a version.
            version=args.version,
            release_version=args.created.system_image,
            subnet_ids=list(args.network.subnet_ids.values()),
            ami_type=_IMAGES[architecture(args.created.system_instance_type)],
            instance_types=[args.created.system_instance_type],
            capacity_type="ON_DEMAND",
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=args.created.system_nodes,
                desired_size=args.created.system_nodes,
                max_size=args.created.system_nodes + 1,
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            tags=tags,
            # A zone added to the network would replace the nodes of all system pods (terraform-provider-aws,
            # ``internal/service/eks/node_group.go``, ForceNew). Without routes Karpenter could end no node.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.network, *policies, *args.depends_on],
                ignore_changes=["subnetIds"],
            ),
        )
        self.register_outputs({})
