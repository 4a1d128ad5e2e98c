"""The record of a job's time on this instance, and what those before it tell, put together."""

from __future__ import annotations

from functools import partial
from typing import Final

from contracts.agent.config import Training
from contracts.agent.names import LEASE_FILE
from contracts.jobs.attempt import JobAttempt
from userdata.agent.aws.job_attempts import JobAttemptTable
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks.node import Node
from userdata.agent.work.training import interruptions
from userdata.agent.work.training.record import Recorder
from userdata.agent.work.training.train import newest_checkpoint

INTERRUPTIONS_VARIABLE: Final = "GPU_SPOT_INTERRUPTIONS_PER_HOUR"


def recorder(node: Node, revision: str) -> Recorder | None:
    """Return who writes down how the job's run ``revision`` fares here; None where it has no lease."""
    config, training = node.config, node.config.training
    held = files.read_json(node.directory / LEASE_FILE)
    if training is None or held is None:
        return None
    me, now = node.identity, node.clock.wall()
    begun = JobAttempt(
        token=int(held["token"]),
        revision=revision,
        instance=me.instance,
        instance_type=me.instance_type,
        zone=me.zone,
        market=_market(node),
        side=config.side,
        launched=me.launched or now,
        began=now,
        seen=now,
    )
    table = _table(node, training)
    newest = partial(newest_checkpoint, node.data / "checkpoints" / training.job)
    return Recorder(table, begun, newest, node.clock, node.directory)


def told(node: Node) -> dict[str, str]:
    """Return what the command is told of the job's history; nothing where that cannot be read."""
    training, held = node.config.training, files.read_json(node.directory / LEASE_FILE)
    if training is None or held is None:
        return {}
    token, table, me = int(held["token"]), _table(node, training), node.identity
    tokens = range(max(1, token - interruptions.LOOKED_AT), token)
    try:
        before = [one for one in map(table.read, tokens) if one is not None]
    except AgentError as error:
        log.warning("how often the job was interrupted is not known", error=str(error))
        return {}
    rate = interruptions.per_hour(before, me.instance, me.instance_type, _market(node))
    return {INTERRUPTIONS_VARIABLE: f"{rate:.3g}"}


def _table(node: Node, training: Training) -> JobAttemptTable:
    return JobAttemptTable(node.clients.dynamodb(node.config.region), training.job_table, training.job)


def _market(node: Node) -> str:
    try:
        return node.metadata.market()
    except AgentError as error:
        log.warning("how the instance was bought is not known", error=str(error))
        return ""
