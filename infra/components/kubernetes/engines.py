"""Policies for components of an existing cluster, which its operator attaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam.statement import Statement, document
from infra.scope import Scope


@dataclass(frozen=True)
class EnginePoliciesArgs:
    """``statements`` are the permissions of each component (``keda``, ``efs-csi``) by name."""

    scope: Scope
    statements: Mapping[str, Sequence[Statement]]


class EnginePolicies(pulumi.ComponentResource):
    """A managed policy for each component. Their roles belong to the cluster."""

    arns: dict[str, pulumi.Output[str]]

    def __init__(
        self, name: str, args: EnginePoliciesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the policies."""
        super().__init__("gpu-spot:infra:EnginePolicies", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        self.arns = {}
        for engine, allowed in args.statements.items():
            policy_name = scope.name("kubernetes", engine)
            self.arns[engine] = aws.iam.Policy(
                policy_name,
                description=f"What {engine} needs for the entries of {scope.stack} on Kubernetes",
                policy=document(allowed),
                tags=scope.tags(policy_name),
                opts=child,
            ).arn
        self.register_outputs({"arns": self.arns})
