"""The record of a job's time on this instance, put together."""

from __future__ import annotations

from functools import partial

from userdata.agent.aws.stints import Stint, StintTable
from userdata.agent.config.names import LEASE_FILE
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks.node import Node
from userdata.agent.work.record import Recorder
from userdata.agent.work.train import newest_checkpoint


def recorder(node: Node, revision: str) -> Recorder | None:
    """Return who writes down how the job's run ``revision`` fares here; None where it has no lease."""
    config, training = node.config, node.config.training
    held = files.read_json(node.directory / LEASE_FILE)
    if training is None or held is None:
        return None
    me, now = node.identity, node.clock.wall()
    begun = Stint(
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
    table = StintTable(node.clients.dynamodb(config.region), training.job_table, training.job)
    newest = partial(newest_checkpoint, node.data / "checkpoints" / training.job)
    return Recorder(table, begun, newest, node.clock, node.directory)


def _market(node: Node) -> str:
    try:
        return node.metadata.market()
    except AgentError as error:
        log.warning("how the instance was bought is not known", error=str(error))
        return ""
