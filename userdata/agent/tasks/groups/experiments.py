"""Experiments of a group: each instance runs free experiments one after another until all are finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from userdata.agent.aws.experiments import ExperimentTable, GroupJobs
from userdata.agent.lease.experiment_selection import (
    AllFinished,
    ExperimentLease,
    TakeExperiment,
    choose_experiment,
)
from userdata.agent.machine import log
from userdata.agent.tasks import holding, job
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.work.heartbeat import HeartbeatSender

if TYPE_CHECKING:
    from userdata.agent.work.failures.fault_handler import RunEnd

_HEARTBEAT_SECONDS: Final = 5.0
_HEARTBEATS_PER_POLL: Final = 6
"""Heartbeats between two polls while no experiment is free: half a minute; a lease lasts two minutes."""


def run(node: Node, stop: Stop, train: Callable[[Node, Stop, HeartbeatSender], RunEnd]) -> RunEnd:
    """Run experiments until all are finished, or the instance terminates or is faulty.

    ``train`` runs an experiment whose lease this instance has, and releases the lease.
    """
    names = job.experiment_names(node)
    table = experiment_table(node, names)
    group = group_jobs(node)
    holding.end_container(job.current_job(node))
    heartbeats = node.heartbeat_sender()
    heartbeats.is_shared = True

    def work(name: str) -> RunEnd | None:
        experiment = job.experiment(node, name)
        return train(experiment, stop, heartbeats) if holding.try_acquire(experiment) else None

    try:
        group.record_names(names)
        group.mark("running")
        outcome = run_until_finished(node, table.read_leases, work, stop, heartbeats)
        if isinstance(outcome, AllFinished):
            _end(group, outcome, len(names))
            return "done"
        return outcome
    finally:
        heartbeats.is_shared = False
        heartbeats.deregister(0)


def run_until_finished(
    node: Node,
    read: Callable[[], Mapping[str, ExperimentLease]],
    work: Callable[[str], RunEnd | None],
    stop: Stop,
    heartbeats: HeartbeatSender,
) -> AllFinished | RunEnd:
    """Call `run_experiments` for ``node``, which sends heartbeats while it waits."""

    def idle() -> None:
        heartbeats.send([0])
        node.clock.sleep(_HEARTBEAT_SECONDS)

    def should_stop() -> bool:
        return stop.is_requested or node.is_terminating()

    return run_experiments(read, work, idle, should_stop, node.identity.instance, node.clock.wall)


def run_experiments(
    read: Callable[[], Mapping[str, ExperimentLease]],
    work: Callable[[str], RunEnd | None],
    idle: Callable[[], None],
    should_stop: Callable[[], bool],
    instance: str,
    wall: Callable[[], float],
) -> AllFinished | RunEnd:
    """Run experiments until all are finished, or return the outcome that ends this instance's part.

    Args:
        read: returns the leases of the experiments.
        work: acquires an experiment, runs it and releases it; None: another instance acquired it first.
        idle: waits between two polls, with heartbeats.
        should_stop: whether a stop is requested or a termination pending.
        instance: id of this instance.
        wall: returns the time (epoch seconds).
    """
    is_logged = False
    while not should_stop():
        choice = choose_experiment(read(), instance, wall())
        if isinstance(choice, AllFinished):
            return choice
        if isinstance(choice, TakeExperiment):
            is_logged = False
            outcome = work(choice.name)
            if outcome in ("host", "stopped"):
                return outcome
            continue
        if not is_logged:
            log.info("no lease is free", left=choice.unfinished)
            is_logged = True
        for _ in range(_HEARTBEATS_PER_POLL):
            if not should_stop():
                idle()
    return "stopped"


def experiment_table(node: Node, names: Sequence[str]) -> ExperimentTable:
    """Return the experiments ``names`` in the job table."""
    shared = job.training(node)
    dynamodb = node.clients.dynamodb(node.config.region)
    return ExperimentTable(dynamodb, shared.job_table, names, shared.revision, node.clock.sleep)


def group_jobs(node: Node) -> GroupJobs:
    """Return the state of the run that contains all of a group's experiments."""
    shared, region = job.training(node), node.config.region
    return GroupJobs(
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        shared.job_table,
        shared.job,
        job.run_of_group(node),
        shared.finished_parameter,
        node.clock,
    )


def _end(group: GroupJobs, finished: AllFinished, count: int) -> None:
    """Mark the group's run as finished; several instances may do so with the same result."""
    failed = finished.failed
    if failed:
        group.mark("failed", f"{len(failed)} of {count} failed: {', '.join(failed)}")
    else:
        group.mark("done")
    group.publish_finished()
