"""The resources that all entries of a stack use: network, tables, storage, archives, queues."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from infra.components.capacity.agent_store import AgentStore
from infra.components.control.scheduled_function import FunctionContext
from infra.components.control.sdk_layer import SdkLayer
from infra.components.control.state import State
from infra.components.network.network import Network, NetworkArgs
from infra.components.queues import kinds as queue_kinds
from infra.components.queues.declared_queue import DeclaredQueue
from infra.components.storage.storage import Storage, StorageArgs
from infra.iam.instance_statements import InstanceAccess
from infra.schema import Settings
from infra.scope import Scope
from userdata.agent.aws.permissions import Need


@dataclass(frozen=True)
class Foundation:
    """The resources that a stack has in any case, and its queues."""

    scope: Scope
    log_retention_days: int
    network: Network
    state: State
    storage: Storage
    store: AgentStore
    layer: SdkLayer
    queues: Mapping[str, DeclaredQueue]
    """Queues by service, whether its workers run on instances, as pods or on premises."""

    @property
    def functions(self) -> FunctionContext:
        """What all functions of the stack share."""
        return FunctionContext(self.scope, self.state, self.layer.arn, self.log_retention_days)

    def access(self, needs: frozenset[Need]) -> InstanceAccess:
        """Return the access of instances with these needs; the group adds its log group."""
        return InstanceAccess(
            needs=needs,
            registry_table=self.state.registry.name,
            job_table=self.state.jobs.name,
            archives=self.store.archives_arn,
            log_group="",
            cloudwatch_parameter="",
            buckets=[bucket.arn for bucket in self.storage.buckets.values()],
        )


def declare(settings: Settings, scope: Scope, needs: Set[Need]) -> Foundation:
    """Declare the resources; ``needs`` are those of all instances, which determine the VPC endpoints."""
    network = Network(
        scope.name("network"),
        NetworkArgs(
            scope, settings.network, needs, settings.called_by_functions, settings.log_retention_days
        ),
        scope.child_options,
    )
    return Foundation(
        scope,
        settings.log_retention_days,
        network,
        State(scope.name("state"), scope, scope.child_options),
        Storage(
            scope.name("storage"),
            StorageArgs(
                scope,
                settings.storage,
                network.vpc_id,
                # An instance that leaves its zone saves its checkpoint first.
                network.used_subnet_ids,
                network.worker_security_group_id,
                {job.checkpoints for job in settings.on_kubernetes.training},
            ),
            scope.child_options,
        ),
        AgentStore(scope.name("agent"), scope, scope.child_options),
        SdkLayer(scope.name("sdk"), scope, scope.child_options),
        queue_kinds.declare(settings, scope, network),
    )
