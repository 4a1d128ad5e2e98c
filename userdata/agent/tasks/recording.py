"""The record of this instance's job attempt, and the job's interruption rate from earlier attempts."""

from __future__ import annotations

from functools import partial
from typing import Final

from contracts.agent.config import Training
from contracts.agent.names import LAST_ATTEMPT_FILE, LEASE_FILE
from contracts.jobs.attempt import JobAttempt
from userdata.agent.aws.job_attempts import JobAttemptTable
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node
from userdata.agent.work.training import interruptions
from userdata.agent.work.training.checkpoint_files import newest_checkpoint
from userdata.agent.work.training.record import Recorder

INTERRUPTIONS_VARIABLE: Final = "GPU_SPOT_INTERRUPTIONS_PER_HOUR"


def recorder(node: Node, revision: str) -> Recorder | None:
    """Return the recorder of this attempt at the run ``revision``; None without a lease."""
    config, training = node.config, node.config.training
    lease = files.read_json(node.directory / LEASE_FILE)
    if training is None or lease is None:
        return None
    me, now = node.identity, node.clock.wall()
    # An instance that had another attempt before, such as one of another experiment, is its cost until then.
    released = float((files.read_json(node.directory / LAST_ATTEMPT_FILE) or {}).get("ended", 0.0))
    attempt = JobAttempt(
        token=int(lease["token"]),
        revision=revision,
        instance=me.instance,
        instance_type=me.instance_type,
        zone=me.zone,
        purchase_option=purchase_option(node),
        group_role=config.group_role,
        launched=max(me.launched or now, released),
        began=now,
        last_seen_at=now,
        booted=float(lease.get("requested", 0.0)),
    )
    table = attempt_table(node, training)
    newest = partial(newest_checkpoint, job.progress_directory(node))
    return Recorder(table, attempt, newest, node.clock, node.directory, node.run_in_background)


def record_end(node: Node, recorder: Recorder | None, end: str) -> None:
    """Record the end of this attempt, and that the instance's next one begins then."""
    if recorder is not None:
        recorder.record_end(end)
        files.write_json(node.directory / LAST_ATTEMPT_FILE, {"ended": node.clock.wall()})


def history_variables(node: Node) -> dict[str, str]:
    """Return the variables with the job's interruption rate; empty if its history is not readable."""
    training, lease = node.config.training, files.read_json(node.directory / LEASE_FILE)
    if training is None or lease is None:
        return {}
    token, table, me = int(lease["token"]), attempt_table(node, training), node.identity
    tokens = range(max(1, token - interruptions.MAX_ATTEMPTS), token)
    try:
        attempts = [attempt for attempt in map(table.read, tokens) if attempt is not None]
    except AgentError as error:
        log.warning("interruption history not read", error=str(error))
        return {}
    rate = interruptions.per_hour(attempts, me.instance, me.instance_type, purchase_option(node))
    return {INTERRUPTIONS_VARIABLE: f"{rate:.3g}"}


def attempt_table(node: Node, training: Training) -> JobAttemptTable:
    """Return the attempts of a job in its table."""
    name = node.member or training.job
    return JobAttemptTable(node.clients.dynamodb(node.config.region), training.job_table, name)


def purchase_option(node: Node) -> str:
    """Return this instance's purchase option, such as ``spot``; empty if it is unknown."""
    try:
        return node.metadata.purchase_option()
    except AgentError as error:
        log.warning("purchase option unknown", error=str(error))
        return ""
