"""AWS resources of a shared host's tenants: their list, their ports, and their users' sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.components.capacity.agent_store import AgentStore
from infra.iam import tenant_statements
from infra.iam.statement import document
from infra.schema.shared_host import Tenant
from infra.scope import Scope
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.container import name_of

_MAX_NAME_LENGTH: Final = 128
"""Maximum length of the names of IAM policies and Systems Manager documents. Source: their API references."""


@dataclass(frozen=True)
class TenancyArgs:
    """``host`` is the shared host of the stack file; ``store`` has the bucket for its tenants' list."""

    scope: Scope
    host: schema.SharedHost
    store: AgentStore
    vpc_id: pulumi.Input[str]


class Tenancy(pulumi.ComponentResource):
    """The list of tenants in S3 and a security group with their ports.

    Each tenant has a session document that opens a shell in its container, one that forwards to its port if
    it has one, and for each document a policy that allows its users only that. The list is a separate
    object: a changed tenant does not change user data and replaces no instance.
    """

    list_arn: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    access: dict[str, dict[str, pulumi.Input[str] | int]]
    """By tenant: ``principalTag`` of its users, ``shellDocument``, ``shellPolicy``, and with a port
    ``document``, ``policy`` and ``port``."""

    def __init__(self, name: str, args: TenancyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the resources."""
        super().__init__("gpu-spot:infra:Tenancy", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, host = args.scope, args.host
        stored = aws.s3.BucketObjectv2(
            name,
            bucket=args.store.bucket,
            key=codec.key_of(host.name),
            content=codec.encode(host.declared),
            content_type="application/json",
            # Without the user's tags: an S3 object has at most ten.
            tags={"Name": scope.physical(name), names.TAG_STACK: scope.stack},
            opts=self._child,
        )
        self.list_arn = pulumi.Output.concat(
            "arn:", scope.partition, ":s3:::", stored.bucket, "/", stored.key
        )
        self.security_group_id = self._ports().id
        self.access = {tenant.name: self._access(tenant) for tenant in host.tenants}
        self.register_outputs({"list": self.list_arn, "securityGroupId": self.security_group_id})

    def _ports(self) -> aws.ec2.SecurityGroup:
        scope, host = self._args.scope, self._args.host
        name = scope.name(host.name, "ports")
        tags = scope.tags(name, group=host.name)
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=self._args.vpc_id,
            description="Tenants: their ports from the callers, nothing out",
            tags=tags,
            opts=self._child,
        )
        for tenant in host.tenants:
            for caller in host.allowed_sources if tenant.host_port is not None else ():
                suffix = caller.replace(".", "-").replace("/", "-")
                aws.vpc.SecurityGroupIngressRule(
                    # With the port: another port is another rule.
                    f"{name}-{tenant.host_port}-{suffix}",
                    security_group_id=group.id,
                    ip_protocol="tcp",
                    from_port=tenant.host_port,
                    to_port=tenant.host_port,
                    cidr_ipv4=caller,
                    description=f"{tenant.name} from {caller}",
                    tags=tags,
                    opts=self._child,
                )
        return group

    def _access(self, tenant: Tenant) -> dict[str, pulumi.Input[str] | int]:
        scope, host = self._args.scope, self._args.host
        user = tenant_statements.principal(scope.stack, host.name, tenant.name)
        access: dict[str, pulumi.Input[str] | int] = {"principalTag": user}
        if tenant.host_port is not None:
            content = forwarding(tenant.name, tenant.host_port)
            session, policy = self._sessions(tenant, "", "Reach the port of", content)
            access |= {"document": session, "policy": policy, "port": tenant.host_port}
        # A name of a tenant has no dot: no other tenant's document has this name.
        session, policy = self._sessions(tenant, ".shell", "Open a shell in", shell(tenant.name))
        return {**access, "shellDocument": session, "shellPolicy": policy}

    def _sessions(
        self, tenant: Tenant, suffix: str, purpose: str, content: dict[str, object]
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """Declare a session document and its policy; return the document's name and the policy's ARN."""
        scope, host = self._args.scope, self._args.host
        name = scope.name(host.name, f"{tenant.name}{suffix}", limit=_MAX_NAME_LENGTH)
        tags = scope.tags(name, group=host.name)
        session = aws.ssm.Document(
            name,
            document_type="Session",
            document_format="JSON",
            content=json.dumps(content, sort_keys=True),
            tags=tags,
            opts=self._child,
        )
        statements = tenant_statements.sessions(
            scope, host=host.name, tenant=tenant.name, document=session.arn
        )
        policy = aws.iam.Policy(
            name,
            description=f"{purpose} {tenant.name} on {host.name}, through Session Manager",
            policy=document(statements),
            tags=tags,
            opts=self._child,
        )
        return session.name, policy.arn


def shell(tenant: str) -> dict[str, object]:
    """Return a session document that opens a shell in a tenant's container, as its user, and nothing else.

    The command is fixed and replaces the shell that starts it: its end, also by a signal or a missing
    container, ends the session. It runs as root because only root may use Docker; what it starts has the
    user, the capabilities and the limits of the container.
    Source: Systems Manager guide, "Session document schema", "Restrict access to commands in a session".
    """
    command = f"exec docker exec --interactive --tty {name_of(tenant)} sh"
    return {
        "schemaVersion": "1.0",
        "description": f"Opens a shell in the container of {tenant}",
        "sessionType": "InteractiveCommands",
        "properties": {"linux": {"commands": command, "runAsElevated": True}},
    }


def forwarding(tenant: str, port: int) -> dict[str, object]:
    """Return a session document that forwards one fixed port of the host; the caller chooses the local port.

    Source: Systems Manager guide, "Session document schema".
    """
    return {
        "schemaVersion": "1.0",
        "description": f"Forwards to the port of {tenant}",
        "sessionType": "Port",
        "parameters": {
            "localPortNumber": {
                "type": "String",
                "description": "Where to listen on the caller's machine; 0: a free port",
                "allowedPattern": "^[0-9]{1,5}$",
                "default": "0",
            }
        },
        "properties": {
            "portNumber": str(port),
            "type": "LocalPortForwarding",
            "localPortNumber": "{{ localPortNumber }}",
        },
    }
