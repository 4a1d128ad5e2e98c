"""What all entries of a stack stand on: network, tables, storage, the agent's archive, queues."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from infra.components.capacity.agent_store import AgentStore, AgentStoreArgs
from infra.components.control.state import State, StateArgs
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
    """What the stack has whatever its entries are."""

    scope: Scope
    log_retention_days: int
    network: Network
    state: State
    storage: Storage
    store: AgentStore
    queues: Mapping[str, DeclaredQueue]
    """By service: they are there wherever its workers are, on instances, as pods or on premises."""

    def access(self, needs: frozenset[Need]) -> InstanceAccess:
        """Return what instances with these needs use of it; the group adds where its logs go."""
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
    """Declare it; ``needs`` are all that instances are there for, whose endpoints the network has."""
    network = Network(
        scope.name("network"),
        NetworkArgs(scope, settings.network, needs, settings.log_retention_days),
        scope.below,
    )
    return Foundation(
        scope,
        settings.log_retention_days,
        network,
        State(scope.name("state"), StateArgs(scope), scope.below),
        Storage(
            scope.name("storage"),
            StorageArgs(
                scope,
                settings.storage,
                network.vpc_id,
                network.subnet_ids,
                network.worker_security_group_id,
            ),
            scope.below,
        ),
        AgentStore(scope.name("agent"), AgentStoreArgs(scope), scope.below),
        queue_kinds.declare(settings, scope, network),
    )
