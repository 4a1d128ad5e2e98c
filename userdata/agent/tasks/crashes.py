"""Equal crashes over restarts: they end in a reason, and not in a paid machine that tries for ever."""

from __future__ import annotations

import traceback
from typing import Final

from contracts.names import METRIC_HOST_FAULTS
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, RefusedError
from userdata.agent.tasks import job, training
from userdata.agent.tasks.node import Node
from userdata.agent.work.failures.faults import MAX_HOSTS

MAX_EQUAL: Final = 5
"""Equal crashes of a command in a row, on one host and since its boot, after which it is not tried again."""
_FILE: Final = "crashes.json"


def handle(node: Node, command: str, error: Exception) -> int:
    """Count an exception that no code foresaw; return the exit code: 77 ends the restarts.

    A job gets another host then, and has failed after `MAX_HOSTS` hosts without a new checkpoint. A service's
    host sends no heartbeats any more, so its group replaces it.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{type(error).__name__} in {frame.name}: {error}"[:300]
    counts = files.read_json(node.directory / _FILE) or {}
    before = counts.get(command)
    crashes = before["count"] + 1 if isinstance(before, dict) and before.get("reason") == reason else 1
    files.write_json(node.directory / _FILE, {**counts, command: {"reason": reason, "count": crashes}})
    if crashes < MAX_EQUAL:
        return AgentError.exit_code
    reason = f"{command} crashed {crashes} times: {reason}"
    log.error("given up", command=command, reason=reason)
    is_job = node.config.training is not None and command in ("run", "volume")
    try:
        if is_job:
            replace(node, reason, is_new=crashes == MAX_EQUAL)
        elif crashes == MAX_EQUAL:
            job.alarm_metrics(node).increment(METRIC_HOST_FAULTS)
    except Exception as failure:  # the next crash tries again
        log.error("crash not handled", command=command, error=str(failure))
        return AgentError.exit_code
    return RefusedError.exit_code


def replace(node: Node, reason: str, *, is_new: bool = True) -> None:
    """Replace the host of a job, which has failed after `MAX_HOSTS` hosts without a new checkpoint.

    ``is_new``: whether the alarm's metric counts it.
    """
    if is_new:
        job.alarm_metrics(node).increment(METRIC_HOST_FAULTS)
    if (jobs := job.jobs(job.current_job(node))).count_host_fault(0.0) > MAX_HOSTS:
        job.fail(node, jobs, reason)
    training.replace_host(node)
