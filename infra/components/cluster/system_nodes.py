"""The node group of a cluster's own pods: DNS, controllers, drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.catalogue.cpu_types import architecture
from infra.components.capacity.launch_options import metadata_options, root_volume, tagged
from infra.components.cluster.roles import service_role
from infra.components.network.network import Network
from infra.iam import cluster_statements
from infra.schema.cluster.own_cluster import OwnCluster
from infra.scope import Scope

_IMAGES: Final = {"arm64": "AL2023_ARM_64_STANDARD", "x86_64": "AL2023_x86_64_STANDARD"}
_ROOT_GIB: Final = 30


@dataclass(frozen=True)
class SystemNodesArgs:
    """``cluster`` is the cluster's name; ``ready`` is what nodes need to become ready: their network."""

    scope: Scope
    own: OwnCluster
    cluster: pulumi.Input[str]
    network: Network
    ready: Sequence[pulumi.Resource]


class SystemNodes(pulumi.ComponentResource):
    """Produces: a managed node group on-demand, its launch template and role.

    Without a taint: every chart would have to bear it, and GPU nodes have one of their own that keeps all but
    the entries' pods away.
    """

    group: aws.eks.NodeGroup

    def __init__(self, name: str, args: SystemNodesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the node group."""
        super().__init__("gpu-spot:infra:SystemNodes", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name)
        role = service_role(scope, "system-nodes", "ec2.amazonaws.com", cluster_statements.NODE, child)
        template = aws.ec2.LaunchTemplate(
            name,
            description="Nodes of a cluster's own pods",
            metadata_options=metadata_options(),
            block_device_mappings=[root_volume(scope, "/dev/xvda", _ROOT_GIB)],
            tag_specifications=tagged(tags, ("instance", "volume")),
            update_default_version=True,
            tags=tags,
            opts=child,
        )
        self.group = aws.eks.NodeGroup(
            name,
            cluster_name=args.cluster,
            node_role_arn=role.arn,
            subnet_ids=list(args.network.subnet_ids.values()),
            ami_type=_IMAGES[architecture(args.own.system_type)],
            instance_types=[args.own.system_type],
            capacity_type="ON_DEMAND",
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=args.own.system_nodes,
                desired_size=args.own.system_nodes,
                max_size=args.own.system_nodes + 1,
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.ready)),
        )
        self.register_outputs({})
