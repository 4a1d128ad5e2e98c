"""AWS resources of a shared host's tenants: their list, ports and port forwarding."""

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

    Each tenant with a port also has a session document that forwards to it and a policy that allows only
    that. The list is a separate object: a changed tenant does not change user data and replaces no instance.
    """

    list_arn: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    forwarding: dict[str, dict[str, pulumi.Input[str] | int]]
    """``document``, ``policy`` and ``port`` by tenant, for tenants with a port."""

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
            tags={"Name": name, names.TAG_STACK: scope.stack},
            opts=self._child,
        )
        self.list_arn = pulumi.Output.concat(
            "arn:", scope.partition, ":s3:::", stored.bucket, "/", stored.key
        )
        self.security_group_id = self._ports().id
        self.forwarding = {
            tenant.name: self._forwarding(tenant, tenant.host_port)
            for tenant in host.tenants
            if tenant.host_port is not None
        }
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

    def _forwarding(self, tenant: Tenant, port: int) -> dict[str, pulumi.Input[str] | int]:
        scope, host = self._args.scope, self._args.host
        name = scope.name(host.name, tenant.name, limit=_MAX_NAME_LENGTH)
        tags = scope.tags(name, group=host.name)
        forwarder = aws.ssm.Document(
            name,
            document_type="Session",
            document_format="JSON",
            content=json.dumps(session(tenant.name, port), sort_keys=True),
            tags=tags,
            opts=self._child,
        )
        policy = aws.iam.Policy(
            name,
            description=f"Reach the port of {tenant.name} on {host.name}, through Session Manager",
            policy=document(tenant_statements.forwarding(scope, host=host.name, document=forwarder.arn)),
            tags=tags,
            opts=self._child,
        )
        return {"document": forwarder.name, "policy": policy.arn, "port": port}


def session(tenant: str, port: int) -> dict[str, object]:
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
