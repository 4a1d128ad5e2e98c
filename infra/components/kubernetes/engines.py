"""What the cluster's own engines may do for this stack: policies, for whoever runs the cluster to attach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam.statement import Statement, document
from infra.scope import Scope


@dataclass(frozen=True)
class EnginePoliciesArgs:
    """``allowed`` is what each engine may do, by its name."""

    scope: Scope
    allowed: Mapping[str, Sequence[Statement]]


class EnginePolicies(pulumi.ComponentResource):
    """Produces: a managed policy for each engine. Their roles belong to the cluster, which others share."""

    arns: dict[str, pulumi.Output[str]]

    def __init__(
        self, name: str, args: EnginePoliciesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the policies."""
        super().__init__("gpu-spot:infra:EnginePolicies", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        self.arns = {}
        for engine, allowed in args.allowed.items():
            own = scope.name("kubernetes", engine)
            self.arns[engine] = aws.iam.Policy(
                own,
                description=f"What {engine} needs for the entries of {scope.stack} on Kubernetes",
                policy=document(allowed),
                tags=scope.tags(own),
                opts=child,
            ).arn
        self.register_outputs({"arns": self.arns})
