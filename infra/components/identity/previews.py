"""The role that continuous integration assumes to preview the stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.iam import preview_statements
from infra.iam.statement import document
from infra.scope import Scope

_ISSUER: Final = "token.actions.githubusercontent.com"
_AUDIENCE: Final = "sts.amazonaws.com"


@dataclass(frozen=True)
class PreviewsArgs:
    """Whose pull requests may preview, where the state is, and what there is to look at.

    ``images`` are parameters of this account that name images; ``cluster`` is one of EKS that the stack looks
    up, and none of its own.
    """

    scope: Scope
    settings: schema.Previews
    images: Sequence[str]
    snapshots: bool
    brokers: bool
    network: schema.Network
    cluster: str | None = None


class Previews(pulumi.ComponentResource):
    """Produces: role with its policy; GitHub's identity provider if this stack is to declare it.

    A preview compares with the state and reads image parameters and, where there are such, snapshots of
    datasets, an existing network or cluster, the services of interface endpoints; it looks at nothing else.
    For a broker it draws a password, which nobody keeps.
    """

    role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PreviewsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the role."""
        super().__init__("gpu-spot:infra:Previews", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        provider = scope.oidc_provider_arn(_ISSUER)
        if args.settings.create_provider:
            provider = aws.iam.OpenIdConnectProvider(
                name,
                url=f"https://{_ISSUER}",
                client_id_lists=[_AUDIENCE],
                tags=scope.tags(name),
                opts=child,
            ).arn
        role = aws.iam.Role(
            name,
            assume_role_policy=document(
                preview_statements.assumed_by_pull_requests(
                    provider, _ISSUER, _AUDIENCE, args.settings.repository
                )
            ),
            max_session_duration=3600,
            permissions_boundary=scope.permissions_boundary,
            tags=scope.tags(name),
            opts=child,
        )
        aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=document(
                preview_statements.previews(
                    scope,
                    args.settings.state_bucket,
                    images=args.images,
                    snapshots=args.snapshots,
                    brokers=args.brokers,
                    existing_network=args.network.vpc_id is not None,
                    interfaces=args.network.endpoints == "interface",
                    cluster=args.cluster,
                )
            ),
            opts=child,
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": self.role_arn})
