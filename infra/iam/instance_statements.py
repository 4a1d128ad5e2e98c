"""Permissions of instances: the node agent's, and those of boot, logs and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pulumi

from contracts import names
from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement, grant_key, permitted, use_key
from infra.schema import ListedHost, OnPremises
from infra.schema.access import CommandPermission
from infra.scope import Scope
from userdata.agent.aws import permissions


@dataclass(frozen=True)
class InstanceAccess:
    """Resources that instances of a group use.

    Attributes:
        needs: Selects the node agent's statements.
        registry_table: Name of the worker registry; ``job_table`` likewise. Other resources are ARNs.
        job: A training job's name; empty without one, as are the following texts.
        dataset: ``s3://bucket/directory/``; ``artifacts`` likewise.
        prepared: ``<name>@<version>`` of a prepared dataset, and ``prepared_by``, the group that prepares it.
        secrets: Names of secrets; ``parameters`` those of parameters, without a leading slash.
        permissions: Of the entry's command; ``policy_arns`` are its managed policies.
        queue: A service's queue.
        tenants: The object with a shared host's tenants.
        access_points: The only parts of the file system that instances may mount.
    """

    needs: frozenset[permissions.Need]
    registry_table: pulumi.Input[str]
    job_table: pulumi.Input[str]
    archives: pulumi.Input[str]
    log_group: pulumi.Input[str]
    cloudwatch_parameter: pulumi.Input[str]
    job: str = ""
    dataset: str = ""
    prepared: str = ""
    prepared_by: str = ""
    secrets: Sequence[str] = ()
    parameters: Sequence[str] = ()
    permissions: Sequence[CommandPermission] = ()
    policy_arns: Sequence[str] = ()
    artifacts: str = ""
    queue: QueueAccess | None = None
    tenants: pulumi.Input[str] = ""
    file_system: pulumi.Input[str] | None = None
    access_points: Sequence[pulumi.Input[str]] = ()
    buckets: Sequence[pulumi.Input[str]] = ()
    repositories: Sequence[pulumi.Input[str]] = ()


def instance(scope: Scope, *, group: str, access: InstanceAccess) -> list[Statement]:
    """Return the permissions of an instance of ``group``: boot, Session Manager, reports, and its work's."""
    return [
        Statement("FetchAgent", ["s3:GetObject"], [access.archives]),
        _session_manager(),
        Statement("ConfigureMetrics", ["ssm:GetParameter"], [access.cloudwatch_parameter]),
        Statement(
            "SendMetrics",
            ["cloudwatch:PutMetricData"],
            ANY_RESOURCE,
            {"StringEquals": {"cloudwatch:namespace": names.INSTANCE_NAMESPACE}},
        ),
        Statement(
            "SendLogs",
            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [access.log_group, pulumi.Output.concat(access.log_group, ":*")],
        ),
        *_agent_statements(scope, group, permissions.INSTANCE_ARN, access),
        *_storage_access(access),
        *permitted(access.permissions),
        *(access.queue.work if access.queue is not None else ()),
        *_key(scope, access),
    ]


ON_PREMISES: Final[frozenset[permissions.Need]] = frozenset({"work", "image", "queue", "secret", "parameter"})
"""Needs of the node agent that apply to an on-premises host."""


def on_premises(scope: Scope, *, group: str, host: str, access: InstanceAccess) -> list[Statement]:
    """Return the permissions of an on-premises host: the agent's calls, with its own registry partition."""
    allowed = replace(access, needs=access.needs & ON_PREMISES)
    services = ["dynamodb", *_secret_services(access)]
    services += [access.queue.service] if access.queue is not None else []
    return [
        *_agent_statements(scope, names.on_premises_partition(group), host, allowed),
        *permitted(access.permissions),
        *(access.queue.work if access.queue is not None else ()),
        *use_key(scope, services),
    ]


def file_system_reader(file_system: pulumi.Input[str], access_point: pulumi.Input[str]) -> list[Statement]:
    """Return the permissions of an instance that only reads files behind an access point."""
    return [
        _session_manager(),
        Statement(
            "ReadFiles",
            ["elasticfilesystem:ClientMount"],
            [file_system],
            {"StringEquals": {"elasticfilesystem:AccessPointArn": [access_point]}},
        ),
    ]


def _session_manager() -> Statement:
    # Source: Systems Manager guide, "Create a custom IAM role for Session Manager".
    return Statement(
        "SessionManager",
        [
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        ANY_RESOURCE,
    )


def _agent_statements(scope: Scope, group: str, writer: str, access: InstanceAccess) -> Iterator[Statement]:
    """Yield the node agent's statements with their placeholders filled in."""
    bucket, _, prefix = access.dataset.removeprefix("s3://").partition("/")
    texts = {"stack": scope.stack, "group": group, "writer": writer}
    texts |= {"job": access.job, "prefix": prefix}
    texts |= {"prepared": access.prepared, "prepared_by": access.prepared_by}
    texts |= {"artifacts": access.artifacts.removeprefix("s3://")}
    values: dict[str, pulumi.Input[str]] = {
        **texts,
        "partition": scope.partition,
        "region": scope.region,
        "account": scope.account_id,
        "bucket": bucket,
        "registry_table": access.registry_table,
        "job_table": access.job_table,
        "queue": (access.queue and access.queue.secret) or "",
        "tenants": access.tenants,
        "auto_scaling_group": f"{scope.prefix}{group}-*",
    }
    several = {"repository": access.repositories, "secret": access.secrets, "parameter": access.parameters}
    for statement in permissions.STATEMENTS:
        if access.needs.isdisjoint(statement.needed_by):
            continue
        resources = [
            filled for resource in statement.resources for filled in _filled(resource, values, several)
        ]
        yield Statement(
            statement.sid, statement.actions, resources, _filled_conditions(statement.conditions, texts)
        )


def _filled(
    resource: str, values: Mapping[str, pulumi.Input[str]], several: Mapping[str, Sequence[pulumi.Input[str]]]
) -> list[pulumi.Input[str]]:
    """Return a resource with its placeholders filled in, once for each member of ``several``."""
    for name, members in several.items():
        if f"{{{name}}}" in resource:
            return [pulumi.Output.format(resource, **values, **{name: member}) for member in members]
    return [pulumi.Output.format(resource, **values) if "{" in resource else resource]


def _filled_conditions(
    conditions: permissions.Conditions, words: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    def fill(value: str | list[str]) -> str | list[str]:
        if isinstance(value, str):
            return value.format_map(words)
        return [item.format_map(words) for item in value]

    return {
        operator: {key: fill(value) for key, value in keys.items()} for operator, keys in conditions.items()
    }


def _key(scope: Scope, access: InstanceAccess) -> list[Statement]:
    services = ["dynamodb", "s3", *_secret_services(access)]
    services += [access.queue.service] if access.queue is not None else []
    if not access.needs.isdisjoint({"volume", "tenants"}):
        return [*use_key(scope, ["ec2", *services]), *grant_key(scope)]
    return use_key(scope, services)


def _secret_services(access: InstanceAccess) -> list[str]:
    used = {"secretsmanager": access.secrets, "ssm": access.parameters}
    return [service for service, names_of_service in used.items() if names_of_service]


def _storage_access(access: InstanceAccess) -> Iterator[Statement]:
    if access.file_system is not None:
        yield Statement(
            "MountFiles",
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            [access.file_system],
            {"StringEquals": {"elasticfilesystem:AccessPointArn": list(access.access_points)}},
        )
    if access.buckets:
        yield Statement("ListBuckets", ["s3:ListBucket"], access.buckets)
        yield Statement(
            "ReadBuckets", ["s3:GetObject"], [pulumi.Output.concat(arn, "/*") for arn in access.buckets]
        )


def assumed_by_host(settings: OnPremises, host: ListedHost) -> list[Statement]:
    """Trust an on-premises host, by its certificate or its principals; empty if it has neither.

    Roles Anywhere passes the certificate's subject as session tags, so the trust policy must allow tagging.
    Source: IAM Roles Anywhere user guide, "The IAM Roles Anywhere trust model", "Attribute mapping and trust
    policy".
    """
    statements = []
    if settings.trust_anchor:
        subject = {"aws:PrincipalTag/x509Subject/CN": host.name}
        if settings.organizational_unit:
            subject["aws:PrincipalTag/x509Subject/OU"] = settings.organizational_unit
        conditions = {"ArnEquals": {"aws:SourceArn": settings.trust_anchor}, "StringEquals": subject}
        statements.append(
            Statement(
                "AssumeByCertificate",
                ["sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"],
                principal={"Service": "rolesanywhere.amazonaws.com"},
                conditions=conditions,
            )
        )
    if host.principals:
        statements.append(Statement("Assume", ["sts:AssumeRole"], principal={"AWS": list(host.principals)}))
    return statements
