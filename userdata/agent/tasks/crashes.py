"""Failures that repeat over restarts: they end in a reason, and not in a paid machine that tries for ever."""

from __future__ import annotations

import re
import traceback
from typing import Final

from contracts.names import METRIC_HOST_FAULTS
from userdata.agent.machine import files, log
from userdata.agent.machine.background import BackgroundPoller
from userdata.agent.machine.errors import AgentError, LeaseHeldError, RefusedError
from userdata.agent.tasks import job, training
from userdata.agent.tasks.node import Node
from userdata.agent.work.failures.faults import MAX_HOSTS
from userdata.agent.work.training.checkpoint_files import newest_checkpoint

MAX_EQUAL: Final = 5
"""Equal crashes of a command in a row, on one host and since its boot, after which it is not tried again."""
MIN_SECONDS: Final = 3600.0
"""Time for which equal errors that a retry may resolve must repeat: most outages of AWS are shorter."""
MAX_SECONDS: Final = 6 * 3600.0
"""Time after which a command that fails for one reason and another is not tried again. So long without a
failure ends the row."""
MAX_ANY: Final = 24
"""Failures in a row in that time at least."""
_JOB: Final = ("run", "volume")
_WORK: Final = (*_JOB, "work")
"""What the machine is paid for. Other commands go on: without them tenants, proxies and metrics work."""
_FILE: Final = "crashes.json"
_COUNTED: Final = re.compile(r"\w*\d\w*")
"""Numbers and identifiers, in which equal errors may differ."""
_READ_SECONDS: Final = 30.0


def handle(node: Node, command: str, error: Exception) -> int:
    """Count a failure of a command; return the exit code: 77 ends the restarts.

    A job gets another host then, and has failed after `MAX_HOSTS` hosts without a new checkpoint. A service's
    host sends no heartbeats any more, so its group replaces it.
    """
    is_foreseen = isinstance(error, AgentError)
    frame = "" if is_foreseen else f" in {traceback.extract_tb(error.__traceback__)[-1].name}"
    reason = f"{type(error).__name__}{frame}: {error}"[:300]
    kind, now = _COUNTED.sub("#", reason), node.clock.monotonic()
    counts = files.read_json(node.directory / _FILE) or {}
    row = counts.get(command)
    if not isinstance(row, dict) or now - row["at"] > MAX_SECONDS:
        row = {"began": now, "failures": 0, "isGivenUp": False}
    row |= {"at": now, "failures": row["failures"] + 1}
    if row.get("kind") != kind:
        row |= {"kind": kind, "since": now, "equal": 0}
    row["equal"] += 1
    is_equal = row["equal"] >= MAX_EQUAL and (not is_foreseen or now - row["since"] >= MIN_SECONDS)
    is_over = is_equal or (row["failures"] >= MAX_ANY and now - row["began"] >= MAX_SECONDS)
    is_new = is_over and not row["isGivenUp"]
    files.write_json(node.directory / _FILE, {**counts, command: {**row, "isGivenUp": is_over}})
    if not is_over:
        return AgentError.exit_code
    times = row["equal"] if is_equal else row["failures"]
    reason = f"{command} {'failed' if is_foreseen else 'crashed'} {times} times: {reason}"
    log.error("given up", command=command, reason=reason)
    try:
        if node.config.training is not None and command in _JOB:
            replace(node, reason, is_new=is_new, is_of_job=not isinstance(error, LeaseHeldError))
        elif is_new:
            job.alarm_metrics(node).increment(METRIC_HOST_FAULTS)
    except Exception as failure:  # the next failure tries again
        log.error("crash not handled", command=command, error=str(failure))
        return AgentError.exit_code
    return AgentError.exit_code if is_foreseen and command not in _WORK else RefusedError.exit_code


def replace(node: Node, reason: str, *, is_new: bool = True, is_of_job: bool = True) -> None:
    """Replace the host of a job, which has failed after `MAX_HOSTS` hosts without a new checkpoint.

    ``is_new``: whether the alarm's metric counts it; ``is_of_job``: whether the job does.
    """
    if is_new:
        job.alarm_metrics(node).increment(METRIC_HOST_FAULTS)
    try:
        if is_of_job:
            current = job.current_job(node)
            if (jobs := job.jobs(current)).count_host_fault(_newest_checkpoint(current)) > MAX_HOSTS:
                job.fail(node, jobs, reason)
    except AgentError as error:  # the metric has its alarm; this host ends in any case
        log.error("host fault not counted", error=str(error))
    training.replace_host(node)


def _newest_checkpoint(node: Node) -> float:
    """Return its time (epoch seconds); 0 if there is none, or the file system does not answer."""
    directory = job.progress_directory(node)
    read = BackgroundPoller(
        "checkpoints", lambda: newest_checkpoint(directory), node.run_in_background, node.clock, _READ_SECONDS
    )
    try:
        return read.wait()
    except AgentError as error:
        log.warning("checkpoints not read", error=str(error))
        return 0.0
