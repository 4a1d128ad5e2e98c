"""Several nodes of one job: each instance is one of them while it has the lease of one of the node items.

There is no leader. Which nodes train together is decided by ``spot_training.torch.init()``, in the directory
of checkpoints (docs/adr/0082); the agent says how many there may be, and starts a failed command again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from userdata.agent.aws.experiments import NodeJobs
from userdata.agent.lease.experiment_selection import AllFinished, ExperimentLease
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks import holding, job
from userdata.agent.tasks.groups import experiments
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.training.variables import NODE_VARIABLE, NODES_VARIABLE

if TYPE_CHECKING:
    from userdata.agent.work.failures.fault_handler import RunEnd


def run(node: Node, stop: Stop, train: Callable[[Node, Stop, HeartbeatSender], RunEnd]) -> RunEnd:
    """Be one of the nodes until the job is finished, or the instance terminates or is faulty.

    ``train`` runs the command as a node whose lease this instance has, and releases the lease. An instance
    without one stands by: more than the largest number are there while instances are exchanged.
    """
    limits = job.training(node).nodes
    assert limits is not None
    names = limits.names(job.training(node).job)
    table, jobs = experiments.experiment_table(node, names), job.jobs(node)
    assert isinstance(jobs, NodeJobs)
    heartbeats = node.heartbeat_sender()
    heartbeats.is_shared = True

    def read() -> Mapping[str, ExperimentLease]:
        if jobs.is_finished():
            return {name: ExperimentLease(is_finished=True) for name in names}
        return ready_leases(table.read_leases(), node.identity.instance, node.clock.wall())

    def work(name: str) -> RunEnd | None:
        member = job.member(node, name)
        return train(member, stop, heartbeats) if holding.try_acquire(member) else None

    try:
        jobs.record_nodes(limits)
        outcome = experiments.run_until_finished(node, read, work, stop, heartbeats)
        if not isinstance(outcome, AllFinished):
            return outcome
        if not jobs.is_finished():
            raise AgentError(f"the {limits.max} nodes have ended, but none of them with rank 0")
        jobs.publish_finished()  # the instance that finished the job may have died before this
        return "done"
    finally:
        heartbeats.is_shared = False
        heartbeats.deregister(0)


def ready_leases(
    leases: Mapping[str, ExperimentLease], instance: str, now: float
) -> Mapping[str, ExperimentLease]:
    """Return the nodes' leases with what ``instance`` may take at ``now`` (epoch seconds).

    Once a node has ended, the training has: the node with rank 0 exports the model, and no other may begin.
    If it was lost meanwhile, one instance repeats it: only one lease is ready then.
    """
    if not any(lease.is_finished for lease in leases.values()):
        return leases
    unfinished = {name: lease for name, lease in leases.items() if not lease.is_finished}
    free = [name for name, lease in unfinished.items() if lease.is_available(instance, now)]
    resumed = [name for name in free if unfinished[name].holder == instance]
    ready = resumed[:1] or (free[:1] if len(free) == len(unfinished) else [])
    return {name: replace(lease, is_ready=name in ready) for name, lease in leases.items()}


def variables(node: Node) -> dict[str, str]:
    """Return the variables that ``spot_training.torch.init()`` reads; none for a job on one instance."""
    limits = job.training(node).nodes
    if limits is None:
        return {}
    return {NODES_VARIABLE: str(limits), NODE_VARIABLE: node.member}
