"""Runs of a job with a schedule: which one this instance is for, and the data of old ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from contracts import codec
from contracts.jobs.run import RUN_FOLDER, RunState, folder
from contracts.stored import ContractError
from userdata.agent.aws.clients import read_parameter
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SLOW
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node

RUN_VARIABLE: Final = "GPU_SPOT_RUN"
"""Time of the run in UTC, such as ``2027-03-01T02:00:00Z``."""


def enter(node: Node) -> None:
    """Make the job's newest run the training of ``node``; a job without a schedule has only its revision.

    The run has the revision with which it began, and the environment and arguments of its request.

    Raises:
        AgentError: the run cannot be read, or none was requested: the controller wants no instance.
    """
    training = node.config.training
    if training is None or training.scheduled is None or training.scheduled.folder:
        return
    parameter = training.scheduled.parameter
    try:
        state = codec.parse_text(RunState, read_parameter(node.clients.ssm(node.config.region), parameter))
    except ContractError as error:
        raise AgentError(f"parameter {parameter}: {error}") from None
    request = state.request
    if request is None or not state.revision:
        raise AgentError(f"parameter {parameter}: no run was requested yet")
    changed = replace(
        training,
        revision=state.revision,
        environment={**training.environment, **request.environment, RUN_VARIABLE: request.time},
        command=(*training.command, *request.arguments),
        scheduled=replace(training.scheduled, folder=folder(request.time)),
        artifacts=training.artifacts and f"{training.artifacts}{folder(request.time)}/",
    )
    node.config = replace(node.config, training=changed)
    log.info("run of a schedule", job=training.job, run=changed.run)


def delete_old_runs(node: Node) -> None:
    """Delete the checkpoints and artifacts of all runs but the newest ones that the job keeps.

    Only directories with a run's name count, and none that is newer than this run. An error is logged: the
    run does not depend on the space.
    """
    scheduled = job.training(node).scheduled
    if scheduled is None or not scheduled.keep:
        return
    paths = [job.checkpoints(node), *([job.artifacts(node)] if node.config.volume else [])]
    for parent in (path.parent for path in paths):
        try:
            for path in _old(parent, scheduled.folder, scheduled.keep):
                node.host.run(["rm", "--recursive", "--one-file-system", "--", str(path)], SLOW)
                log.info("data of an old run deleted", path=str(path))
        except (OSError, AgentError) as error:
            log.warning("data of old runs not deleted", parent=str(parent), error=str(error))


def _old(parent: Path, current: str, keep: int) -> list[Path]:
    """Return the directories of runs before ``current``, without the newest ``keep`` of which it is one."""
    if parent.is_symlink():
        raise AgentError("a link is not followed")
    earlier = sorted(
        path
        for path in parent.iterdir()
        if re.fullmatch(RUN_FOLDER, path.name)
        and path.name < current
        and path.is_dir()
        and not path.is_symlink()
    )
    return earlier[: max(0, len(earlier) - (keep - 1))]
