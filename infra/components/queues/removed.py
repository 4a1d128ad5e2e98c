"""Queues that the stack still has and no longer declares: they go after their last worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.components.network.existing import instances
from infra.schema.services.service import Service
from infra.scope import Scope

_KINDS: Final = {"mq": "rabbitmq", "sqs": "sqs"}
"""``queue.kind`` by the service in an ARN."""


def refuse_if_used(services: Iterable[Service], scope: Scope) -> None:
    """Refuse to delete a broker or queue while instances of its service run: nothing has changed by then.

    AWS deletes it also while it is used. Raises ``pulumi.RunError``.
    """
    of_stack = aws.resourcegroupstaggingapi.GetResourcesTagFilterArgs(
        key=names.TAG_STACK, values=[scope.stack]
    )
    present = aws.resourcegroupstaggingapi.get_resources(
        resource_type_filters=["mq:broker", "sqs"], tag_filters=[of_stack], opts=scope.invoke_options
    ).resource_tag_mapping_lists
    declared = {
        (service.name, service.queue.kind)
        for service in services
        if service.queue is not None and service.queue.existing is None
    }
    existing = {
        (queue.tags.get(names.TAG_GROUP, ""), _KINDS[queue.resource_arn.split(":")[2]]) for queue in present
    }
    for service, kind in sorted(existing - declared):
        of_service = {f"tag:{names.TAG_GROUP}": [service]}
        if running := instances(scope, of_service, ("pending", "running")).ids:
            raise pulumi.RunError(
                f"gpu-spot:services must keep queue.kind: {kind} of {service!r} while its instances run, now "
                f"{len(running)}: they would lose it with the messages. Set its capacity.target: 0 without "
                "scaling, and remove the queue by a later `pulumi up`, once they have ended"
            )
