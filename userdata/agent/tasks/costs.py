"""Prices for a job's command."""

from __future__ import annotations

from typing import Final

from userdata.agent.aws.clients import aws_errors
from userdata.agent.aws.spot_prices import read_spot_prices
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks import job, recording
from userdata.agent.tasks.node import Node

INSTANCE_VARIABLE: Final = "GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR"
STORAGE_VARIABLE: Final = "GPU_SPOT_STORAGE_DOLLARS_A_GIB"


def price_variables(node: Node) -> dict[str, str]:
    """Return the variables with the prices of this instance and of writing checkpoints.

    An unknown price is left out: `spot_training` then saves at its longest interval. EBS charges for the
    volume's size and throughput, not by GiB written.
    Source: Amazon EBS pricing; Amazon EFS pricing, "Elastic Throughput".
    """
    prices = job.training(node).prices
    is_on_efs = job.saves_to_efs(node)
    if is_on_efs and prices.efs_write_is_assumed:
        log.warning(
            "price of writing to EFS unknown in this region: the highest known one counts; make prices"
            " reads it",
            region=node.config.region,
            dollars_a_gib=prices.efs_write,
        )
    values = {
        INSTANCE_VARIABLE: _instance_dollars(node),
        STORAGE_VARIABLE: prices.efs_write if is_on_efs else 0.0,
    }
    return {name: f"{value:.6g}" for name, value in values.items() if value is not None}


def _instance_dollars(node: Node) -> float | None:
    """Return what this instance costs an hour now; None if that is unknown."""
    option, me, now = recording.purchase_option(node), node.identity, node.clock.wall()
    if option == "on-demand":
        return job.training(node).prices.on_demand.get(me.instance_type)
    if option != "spot":
        return None
    try:
        with aws_errors("Spot price"):
            prices = read_spot_prices(
                node.clients.ec2(node.config.region), [me.instance_type], [me.zone], now, now
            )
    except AgentError as error:
        log.warning("Spot price not read", error=str(error))
        return None
    return max(prices.get((me.instance_type, me.zone), ()), default=(0.0, None))[1]
