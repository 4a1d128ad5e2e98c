"""Queues that the stack still has and no longer declares: they go after their last worker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.broker_users import BrokerRole
from infra.components.network.existing import instances
from infra.schema.services.queues import AnyQueue
from infra.schema.services.service import Service
from infra.scope import Scope

_SECRETS: Final = "secretsmanager"
_KINDS: Final = {"mq": "rabbitmq", _SECRETS: "rabbitmq", "sqs": "sqs"}
"""``queue.kind`` by the service in an ARN; a secret is for workers on a broker, their own or another's."""


def refuse_if_used(services: Iterable[Service], scope: Scope) -> None:
    """Refuse to take a broker or queue from running workers: nothing has changed by then.

    AWS deletes it also while it is used. Workers are found by their instances, to which Karpenter gives a
    service's tags, too, and on premises by the hosts in the deployed stack. Callers are not looked up.
    Raises ``pulumi.RunError``.
    """
    of_stack = aws.resourcegroupstaggingapi.GetResourcesTagFilterArgs(
        key=names.TAG_STACK, values=[scope.stack]
    )
    present = aws.resourcegroupstaggingapi.get_resources(
        resource_type_filters=["mq:broker", "secretsmanager:secret", "sqs"],
        tag_filters=[of_stack],
        opts=scope.invoke_options,
    ).resource_tag_mapping_lists
    declared = {(s.name, part) for s in services if s.queue is not None for part in _parts(s.queue)}
    existing = {
        (resource.tags.get(names.TAG_GROUP, ""), part)
        for resource in present
        if (part := resource.resource_arn.split(":")[2]) != _SECRETS
        or resource.tags.get("Name", "").endswith(f"-mq-{BrokerRole.WORKERS.value}")
    }
    for service, part in sorted(existing - declared):
        of_service = {f"tag:{names.TAG_GROUP}": [service]}
        running = len(instances(scope, of_service, ("pending", "running")).ids)
        hosts = [*_hosts(service, scope)]
        if running or hosts:
            raise pulumi.RunError(
                f"gpu-spot:services must keep queue.kind: {_KINDS[part]} of {service!r} while its workers "
                f"run, now on {running} instances, on premises on {', '.join(hosts) or 'none'}: they would "
                "lose it with its messages. Set its capacity.target: 0 without scaling, remove its "
                "onPremises, and remove the queue by a later `pulumi up`, once they have ended"
            )


def _parts(queue: AnyQueue) -> tuple[str, ...]:
    """Return the services of AWS in which the stack has a part of a queue."""
    if queue.broker_of is not None:
        return (_SECRETS,)
    return tuple(part for part, kind in _KINDS.items() if kind == queue.kind and queue.existing is None)


def _hosts(service: str, scope: Scope) -> Iterator[str]:
    """Yield the service's hosts on premises, as the deployed stack has them."""
    path = f"{names.parameter_root(scope.stack)}/{service}"
    stored = aws.ssm.get_parameters_by_path(path=path, opts=scope.invoke_options)
    for name, value in zip(stored.names, stored.values, strict=True):
        if name == f"{path}/{names.PARAMETER_CONFIG}":
            yield from sorted(json.loads(value).get("onPremisesHosts", ()))
