"""A group whose instances share experiments: each takes one after another, until all have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from contracts.agent.experiments import by_name, run_of
from userdata.agent.aws.experiments import ExperimentTable, GroupJobs
from userdata.agent.lease.experiment_selection import Finished, Take, Turn, choose
from userdata.agent.machine import log
from userdata.agent.tasks import holding, job
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.work.heartbeat import Heart

if TYPE_CHECKING:
    from userdata.agent.work.failures.judge import RunEnd

_BEAT_EVERY: Final = 5.0
_BEATS: Final = 6
"""Between two looks while nothing is free: half a minute, where a lost instance's lease runs for two."""


def run(node: Node, stop: Stop, train: Callable[[Node, Stop, Heart], RunEnd]) -> RunEnd:
    """Run experiments until all have ended, or the instance is being taken or no good.

    ``train`` runs one whose lease is held here, and gives it back.
    """
    shared = job.training(node)
    names = list(by_name(shared.job, shared.experiments))
    dynamodb = node.clients.dynamodb(node.config.region)
    table = ExperimentTable(dynamodb, shared.job_table, names, shared.revision)
    group = group_jobs(node)
    holding.end_container(job.at_hand(node))
    heart = node.heart()
    heart.is_shared = True

    def work(name: str) -> RunEnd | None:
        one = job.experiment(node, name)
        return train(one, stop, heart) if holding.take(one) else None

    def idle() -> None:
        heart.beat([0])
        node.clock.sleep(_BEAT_EVERY)

    def is_over() -> bool:
        return stop.told or node.is_taken()

    try:
        group.name(names)
        group.mark("running")
        outcome = take_turns(table.read, work, idle, is_over, node.identity.instance, node.clock.wall)
        if isinstance(outcome, Finished):
            _end(group, outcome, len(names))
            return "done"
        return outcome
    finally:
        heart.is_shared = False
        heart.leave(0)


def take_turns(
    look: Callable[[], Mapping[str, Turn]],
    work: Callable[[str], RunEnd | None],
    idle: Callable[[], None],
    is_over: Callable[[], bool],
    me: str,
    wall: Callable[[], float],
) -> Finished | RunEnd:
    """Take experiments until all have ended; else return how this instance's part ends.

    ``work`` runs one and gives it back; None: somebody else was first. ``idle`` passes a while of waiting.
    """
    said = False
    while not is_over():
        choice = choose(look(), me, wall())
        if isinstance(choice, Finished):
            return choice
        if isinstance(choice, Take):
            said = False
            outcome = work(choice.name)
            if outcome in ("host", "stopped"):
                return outcome
            continue
        if not said:
            log.info("no experiment is free", left=choice.left)
            said = True
        for _ in range(_BEATS):
            if not is_over():
                idle()
    return "stopped"


def group_jobs(node: Node) -> GroupJobs:
    """Return the state of the run of all of a group's experiments."""
    shared, region = job.training(node), node.config.region
    return GroupJobs(
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        shared.job_table,
        shared.job,
        run_of(shared.revision, shared.experiments),
        shared.finished_parameter,
        node.clock,
    )


def _end(group: GroupJobs, finished: Finished, count: int) -> None:
    """Say that the run of all has ended; who finds the same at the same time says the same."""
    failed = finished.failed
    if failed:
        group.mark("failed", f"{len(failed)} of {count} failed: {', '.join(failed)}")
    else:
        group.mark("done")
    group.take_down()
