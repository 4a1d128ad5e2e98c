"""The stack outputs that do not depend on the kinds of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from contracts import names
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.program.operations import Operations


def export(foundation: Foundation, workloads: Sequence[Workload], operations: Operations) -> None:
    """Export the outputs of every stack, and those of its storage and queues."""
    scope, network, state = foundation.scope, foundation.network, foundation.state
    controller, monitoring = operations.controller, operations.monitoring
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
    scope.export("groups", {workload.name: _group(scope.stack, workload) for workload in workloads})
    _export_storage(foundation)
    if queues := {name: queue.outputs for name, queue in foundation.queues.items() if queue.outputs}:
        scope.export("queues", queues)


def _group(stack: str, workload: Workload) -> dict[str, Any]:
    group = workload.group
    control = names.group_parameter(stack, workload.name, names.PARAMETER_CONTROL)
    return {
        "primary": group.primary_name,
        "fallback": group.fallback_name,
        "control": control if group.is_managed else None,
    }


def _export_storage(foundation: Foundation) -> None:
    """Export the storage that the stack has."""
    scope, storage = foundation.scope, foundation.storage
    if storage.file_system is not None:
        scope.export("fileSystemId", storage.file_system.id)
        scope.export("accessPointIds", storage.file_system.access_point_ids)
    if storage.buckets:
        scope.export("buckets", {name: bucket.name for name, bucket in storage.buckets.items()})
    if storage.repositories:
        scope.export(
            "repositories", {name: repository.url for name, repository in storage.repositories.items()}
        )
