"""What a stack tells who deploys it: the outputs of ``pulumi stack output``."""

from __future__ import annotations

from typing import Any

import pulumi

from contracts import names
from infra.components.capacity.capacity_group import CapacityGroup
from infra.components.control.controller import Controller
from infra.components.control.state import State
from infra.components.monitoring.monitoring import Monitoring
from infra.components.network.network import Network
from infra.components.queue.broker import Broker
from infra.components.queue.sqs import Sqs
from infra.components.storage.storage import Storage
from infra.scope import Scope


def of_stack(
    scope: Scope,
    network: Network,
    state: State,
    groups: dict[str, CapacityGroup],
    controller: Controller,
    monitoring: Monitoring,
) -> None:
    """Export what every stack has: network, tables, queues, controller, alarms, groups."""
    scope.export("vpcId", network.vpc_id)
    scope.export("privateSubnetIds", list(network.subnet_ids.values()))
    scope.export("memoryTable", state.memory.name)
    scope.export("registryTable", state.registry.name)
    scope.export("jobTable", state.jobs.name)
    scope.export("queueUrl", controller.wake_ups.queue_url)
    scope.export("deadLetterQueueUrl", controller.wake_ups.dead_letter_url)
    scope.export("controllerFunction", controller.function_name)
    scope.export("controllerLogGroup", controller.log_group_name)
    scope.export("alarmTopic", monitoring.topic_arn)
    scope.export("dashboard", monitoring.dashboard_name)
    scope.export(
        "followDecisions",
        pulumi.Output.concat(
            "aws logs tail ", controller.log_group_name, " --follow --region ", scope.region
        ),
    )
    scope.export("groups", {name: _group(scope, name, group) for name, group in groups.items()})


def _group(scope: Scope, name: str, group: CapacityGroup) -> dict[str, Any]:
    return {
        "primary": group.primary_name,
        "fallback": group.fallback_name,
        "control": names.group_parameter(scope.stack, name, names.PARAMETER_CONTROL)
        if group.is_kept
        else None,
    }


def of_queues(scope: Scope, brokers: dict[str, Broker], sqs: dict[str, Sqs]) -> None:
    """Export by service how its queue is reached."""
    of_brokers = {
        name: {"broker": one.name, "console": one.console_url, "secret": one.secret_name}
        for name, one in brokers.items()
    }
    of_sqs = {
        name: {"url": one.url, "queue": one.name, "deadLetters": one.dead_name, "callers": one.callers_policy}
        for name, one in sqs.items()
    }
    scope.export("queues", {**of_brokers, **of_sqs})


def of_storage(scope: Scope, storage: Storage) -> None:
    """Export what outlives instances, as far as there is any."""
    if storage.file_system is not None:
        scope.export("fileSystemId", storage.file_system.id)
        scope.export("accessPointIds", storage.file_system.access_point_ids)
    if storage.buckets:
        scope.export("buckets", {name: bucket.name for name, bucket in storage.buckets.items()})
    if storage.repositories:
        scope.export("repositories", {name: one.url for name, one in storage.repositories.items()})
