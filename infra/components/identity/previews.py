"""Roles that continuous integration assumes for previews, deployments and drift detection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.components.identity.identity import attach, declare_role
from infra.iam import preview_statements
from infra.iam.preview_statements import TrustedJobs
from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import Statement, document
from infra.scope import Scope

_ISSUER: Final = "token.actions.githubusercontent.com"
_CLIENT_ID: Final = "sts.amazonaws.com"


@dataclass(frozen=True)
class PreviewsArgs:
    """Arguments of ``Previews``.

    Attributes:
        settings: The repository and environment whose jobs are trusted, and the state's bucket and key.
        images: Parameters of this account that name images.
        vpc_id: An existing VPC that the stack looks up.
        interfaces: Whether it looks up services of interface endpoints.
        cluster: An EKS cluster that the stack looks up, or whose add-ons' versions.
    """

    scope: Scope
    settings: schema.Previews
    images: Sequence[str]
    snapshots: bool
    queues: Sequence[QueueAccess]
    vpc_id: str | None
    interfaces: bool
    cluster: schema.Kubernetes | None = None


class Previews(pulumi.ComponentResource):
    """A role with its policy, and GitHub's identity provider if the settings ask for it.

    A preview compares with the state and looks up image parameters and, if the stack uses them, snapshots of
    datasets, an existing network or cluster, and the services of interface endpoints. For a broker it
    generates a password, which is not stored.
    """

    role_arn: pulumi.Output[str]
    provider_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PreviewsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the role."""
        super().__init__("gpu-spot:infra:Previews", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        provider = scope.oidc_provider_arn(_ISSUER)
        if args.settings.create_provider:
            provider = aws.iam.OpenIdConnectProvider(
                name,
                url=f"https://{_ISSUER}",
                client_id_lists=[_CLIENT_ID],
                tags=scope.tags(name),
                opts=child,
            ).arn
        role = _role(name, scope, provider, args.settings.repository, _previewing(args.settings), child)
        aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=document(
                preview_statements.previews(
                    scope,
                    _state(args.settings),
                    images=args.images,
                    snapshots=args.snapshots,
                    queues=args.queues,
                    vpc_id=args.vpc_id,
                    interfaces=args.interfaces,
                    cluster=args.cluster,
                )
            ),
            opts=child,
        )
        self.role_arn = role.arn
        self.provider_arn = provider
        self.register_outputs({"roleArn": self.role_arn})


@dataclass(frozen=True)
class DeploysArgs:
    """Arguments of ``Deploys``.

    Attributes:
        previews: The trusted repository, and the state's bucket and key.
        images: Parameters of this account that name images.
        buckets: ARNs of the stack's buckets, and of the objects that the state has.
    """

    scope: Scope
    settings: schema.Deploys
    previews: schema.Previews
    provider_arn: pulumi.Output[str]
    images: Sequence[str]
    buckets: Sequence[pulumi.Input[str]]


class Deploys(pulumi.ComponentResource):
    """A role for deployments and one for drift detection, with the policies that the settings name.

    The permissions of a deployment are not bounded here: it creates roles, and so can obtain any permission
    that no permissions boundary excludes.
    """

    role_arn: pulumi.Output[str]
    drift_role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: DeploysArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the roles."""
        super().__init__("gpu-spot:infra:Deploys", name, None, opts)
        scope, settings, state = args.scope, args.settings, _state(args.previews)
        deploying = TrustedJobs(settings.environment, settings.branch, settings.workflow)
        drifting = TrustedJobs(settings.drift_environment, settings.branch)
        previewing = _previewing(args.previews).end
        if previewing.casefold() in (deploying.end.casefold(), drifting.end.casefold()):
            # GitHub's environment names are not case-sensitive.
            raise pulumi.RunError(
                f"gpu-spot:identity: {previewing} is the environment of previews and of deploys; use "
                "one for each, because the code of a pull request runs in a preview"
            )
        read_only = pulumi.Output.concat("arn:", scope.partition, ":iam::aws:policy/ReadOnlyAccess")
        self.role_arn = self._role(
            args, "deploys", deploying, settings.policies, preview_statements.write_state(scope, state)
        ).arn
        drift = self._role(
            args,
            "drift",
            drifting,
            settings.drift_policies,
            preview_statements.detect_drift(scope, state, args.images, args.buckets),
        )
        if not settings.drift_policies:
            child = pulumi.ResourceOptions(parent=self)
            aws.iam.RolePolicyAttachment(
                scope.name("drift", "read-only"), role=drift.name, policy_arn=read_only, opts=child
            )
        self.drift_role_arn = drift.arn
        self.register_outputs({"roleArn": self.role_arn, "driftRoleArn": self.drift_role_arn})

    def _role(
        self,
        args: DeploysArgs,
        short: str,
        jobs: TrustedJobs,
        policies: Sequence[str],
        state: Sequence[Statement],
    ) -> aws.iam.Role:
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        role = _role(scope.name(short), scope, args.provider_arn, args.previews.repository, jobs, child)
        attach(role, scope.name(short), policies, child)
        if state:
            aws.iam.RolePolicy(scope.name(short), role=role.name, policy=document(state), opts=child)
        return role


def _state(settings: schema.Previews) -> preview_statements.PulumiState:
    return preview_statements.PulumiState(
        pulumi.get_project(), pulumi.get_stack(), settings.state_bucket, settings.state_kms_key_arn
    )


def _previewing(settings: schema.Previews) -> TrustedJobs:
    return TrustedJobs(settings.environment or f"{pulumi.get_stack()}-preview")


def _role(
    name: str,
    scope: Scope,
    provider: pulumi.Input[str],
    repository: str,
    jobs: TrustedJobs,
    opts: pulumi.ResourceOptions,
) -> aws.iam.Role:
    """Declare a role for jobs of a repository on GitHub."""
    trust = preview_statements.assumed_by_jobs(provider, _ISSUER, _CLIENT_ID, repository, jobs)
    return declare_role(scope, name, trust, opts)
