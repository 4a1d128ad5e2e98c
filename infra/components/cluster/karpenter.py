"""Karpenter's AWS resources: its role, its nodes' role, and the interruption queue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components.cluster.roles import service_role
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.iam import cluster_statements, resource_policies
from infra.iam.statement import document
from infra.scope import Scope

NAMESPACE: Final = "kube-system"
ACCOUNT: Final = "karpenter"
_QUEUE_RETENTION_SECONDS: Final = 300
"""Older notices are of terminated instances. Source: karpenter.sh, "CloudFormation"."""
_EVENTS: Final = {
    "interruption": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "scheduled": ("aws.health", "AWS Health Event"),
}


@dataclass(frozen=True)
class KarpenterArgs:
    """``created_cluster_name`` is the name in ``cluster`` as an output of the cluster's creation."""

    scope: Scope
    cluster: str
    created_cluster_name: pulumi.Input[str]


class Karpenter(pulumi.ComponentResource):
    """The controller's role, the nodes' role, instance profile and access entry, the queue and its rules."""

    queue_name: pulumi.Output[str]
    node_profile: pulumi.Output[str]
    depends_on: list[pulumi.Resource]

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the resources."""
        super().__init__("gpu-spot:infra:Karpenter", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        self._scope, self._child = scope, child
        nodes, policies = service_role(
            scope, "gpu-nodes", "ec2.amazonaws.com", cluster_statements.NODE, child
        )
        profile = aws.iam.InstanceProfile(
            scope.name("gpu-nodes"), role=nodes.name, tags=scope.tags(scope.name("gpu-nodes")), opts=child
        )
        access_entry = aws.eks.AccessEntry(
            scope.name("gpu-nodes"),
            cluster_name=args.created_cluster_name,
            principal_arn=nodes.arn,
            type="EC2_LINUX",
            tags=scope.tags(scope.name("gpu-nodes")),
            opts=child,
        )
        queue = self._queue()
        identity = PodIdentity(
            scope.name("karpenter-pods"),
            PodIdentityArgs(
                scope,
                args.cluster,
                NAMESPACE,
                ACCOUNT,
                cluster_statements.karpenter(scope, args.cluster, queue.arn, nodes.arn),
                created_cluster_name=args.created_cluster_name,
            ),
            child,
        )
        self.queue_name, self.node_profile = queue.name, profile.name
        self.depends_on = [identity, access_entry, *policies]
        self.register_outputs({"queueName": self.queue_name})

    def _queue(self) -> aws.sqs.Queue:
        name, key = self._scope.name("node-notices"), self._scope.kms_key_arn
        queue = aws.sqs.Queue(
            name,
            message_retention_seconds=_QUEUE_RETENTION_SECONDS,
            kms_master_key_id=key,
            sqs_managed_sse_enabled=True if key is None else None,
            tags=self._scope.tags(name),
            opts=self._child,
        )
        rules = []
        for short, (source, kind) in _EVENTS.items():
            rule_name = self._scope.name("node", short)
            rule = aws.cloudwatch.EventRule(
                rule_name,
                description="Interruption and state events of nodes for Karpenter",
                event_pattern=json.dumps({"source": [source], "detail-type": [kind]}),
                tags=self._scope.tags(rule_name),
                opts=self._child,
            )
            aws.cloudwatch.EventTarget(rule_name, rule=rule.name, arn=queue.arn, opts=self._child)
            rules.append(rule)
        aws.sqs.QueuePolicy(
            name,
            queue_url=queue.url,
            policy=document(resource_policies.queue(queue.arn, [rule.arn for rule in rules])),
            opts=self._child,
        )
        return queue
