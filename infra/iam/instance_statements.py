"""What GPU instances may do: what the node agent asks for, and what runs beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pulumi

from contracts import names
from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement, lend_key, with_key
from infra.schema import OnPremises
from infra.scope import Scope
from userdata.agent.aws import permissions

_REPOSITORY: Final = "{repository}"


@dataclass(frozen=True)
class InstanceAccess:
    """What instances of a group use; ARNs but for the tables' names.

    ``needs`` chooses among the agent's statements; ``job`` and ``dataset`` (``s3://bucket/folder/``) are a
    training job's, empty without, and so are ``artifacts`` (likewise), ``secret``, a secret's name,
    ``prepared`` (``<name>@<version>``) and the group ``prepared_by``. ``queue`` is a service's. Of the file
    system instances see what lies behind ``access_points``. ``tenants`` is the list of a shared host's.
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
    secret: str = ""
    artifacts: str = ""
    queue: QueueAccess | None = None
    tenants: pulumi.Input[str] = ""
    file_system: pulumi.Input[str] | None = None
    access_points: Sequence[pulumi.Input[str]] = ()
    buckets: Sequence[pulumi.Input[str]] = ()
    repositories: Sequence[pulumi.Input[str]] = ()


def instance(scope: Scope, *, group: str, access: InstanceAccess) -> list[Statement]:
    """What an instance of ``group`` may do: boot, be looked into, report, and what its work needs."""
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
        *_of_agent(scope, group, access),
        *_storage_access(access),
        *(access.queue.work if access.queue is not None else ()),
        *_key(scope, access),
    ]


ON_PREMISES: Final[frozenset[permissions.Need]] = frozenset({"work", "image", "queue"})
"""What the agent may need on a host that is no instance."""


def on_premises(scope: Scope, *, group: str, access: InstanceAccess) -> list[Statement]:
    """What hosts elsewhere may do: the agent's own calls, with a part of the registry to themselves."""
    allowed = replace(access, needs=access.needs & ON_PREMISES)
    services = ["dynamodb", *([access.queue.service] if access.queue is not None else [])]
    return [
        *_of_agent(scope, names.on_premises_partition(group), allowed),
        *(access.queue.work if access.queue is not None else ()),
        *with_key(scope, services),
    ]


def reader(file_system: pulumi.Input[str], access_point: pulumi.Input[str]) -> list[Statement]:
    """What an instance may do that only shows what lies behind an access point."""
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
    # The least that it needs (Systems Manager guide, "Create a custom IAM role for Session Manager").
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


def _of_agent(scope: Scope, group: str, access: InstanceAccess) -> Iterator[Statement]:
    """Fill in the agent's own list: the account's parts are outputs, the others text."""
    bucket, _, prefix = access.dataset.removeprefix("s3://").partition("/")
    words = {"stack": scope.stack, "group": group, "job": access.job, "prefix": prefix}
    words |= {"prepared": access.prepared, "prepared_by": access.prepared_by}
    words |= {"secret": access.secret, "artifacts": access.artifacts.removeprefix("s3://")}
    places: dict[str, pulumi.Input[str]] = {
        **words,
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
    for statement in permissions.STATEMENTS:
        if access.needs.isdisjoint(statement.needed_by):
            continue
        resources: list[pulumi.Input[str]] = []
        for resource in statement.resources:
            if resource == _REPOSITORY:
                resources += access.repositories
            else:
                resources.append(pulumi.Output.format(resource, **places) if "{" in resource else resource)
        yield Statement(statement.sid, statement.actions, resources, _filled(statement.conditions, words))


def _filled(conditions: permissions.Conditions, words: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    def fill(value: str | list[str]) -> str | list[str]:
        if isinstance(value, str):
            return value.format_map(words)
        return [item.format_map(words) for item in value]

    return {
        operator: {key: fill(value) for key, value in keys.items()} for operator, keys in conditions.items()
    }


def _key(scope: Scope, access: InstanceAccess) -> list[Statement]:
    services = ["dynamodb", "s3", *(["secretsmanager"] if access.secret else [])]
    services += [access.queue.service] if access.queue is not None else []
    if not access.needs.isdisjoint({"volume", "tenants"}):
        return [*with_key(scope, ["ec2", *services]), *lend_key(scope)]
    return with_key(scope, services)


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


def assumed_by_hosts(settings: OnPremises) -> list[Statement]:
    """Trust the hosts that a stack file names; nobody where it names none.

    Roles Anywhere gives the certificate's subject as tags of the session, so the trust must let it tag
    (IAM Roles Anywhere user guide, "The IAM Roles Anywhere trust model").
    """
    found = []
    if settings.trust_anchor:
        conditions: dict[str, dict[str, str]] = {"ArnEquals": {"aws:SourceArn": settings.trust_anchor}}
        if settings.organizational_unit:
            unit = {"aws:PrincipalTag/x509Subject/OU": settings.organizational_unit}
            conditions["StringEquals"] = unit
        found.append(
            Statement(
                "AssumeByCertificate",
                ["sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"],
                principal={"Service": "rolesanywhere.amazonaws.com"},
                conditions=conditions,
            )
        )
    if settings.principals:
        found.append(Statement("Assume", ["sts:AssumeRole"], principal={"AWS": list(settings.principals)}))
    return found
