"""Prices for a job's command, and the page of what its run cost, among its artifacts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from contracts.agent.names import COST_PAGE, LEASE_FILE
from contracts.jobs.attempt import ATTEMPTS_RETAINED
from userdata.agent.aws.clients import aws_errors
from userdata.agent.aws.spot_prices import read_spot_prices
from userdata.agent.cost import page
from userdata.agent.cost.account import account_of
from userdata.agent.cost.prices import SPOT, PriceBook
from userdata.agent.cost.timeline import build_timeline, priced_types
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, LeaseLostError
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
    is_on_efs = job.is_on_efs(node, job.checkpoints(node))
    if is_on_efs and prices.efs_write_is_assumed:
        log.warning(
            "price of writing to EFS unknown in this region: the highest known one counts; gpu-spot prices"
            " --update reads it",
            region=node.config.region,
            dollars_a_gib=prices.efs_write,
        )
    values = {
        INSTANCE_VARIABLE: _instance_dollars(node),
        STORAGE_VARIABLE: prices.efs_write if is_on_efs else 0.0,
    }
    return {name: f"{value:.6g}" for name, value in values.items() if value is not None}


def write_page(node: Node, revision: str, state: str, on_poll: Callable[[], None]) -> None:
    """Write the page of a run that ends as ``state``; an error is logged, it does not affect the run.

    ``on_poll`` is called between requests. The builder of a dataset has no page: its volume is the dataset;
    nor has a job of several nodes, of whose attempts this instance knows only its own.

    Raises:
        LeaseLostError: ``on_poll`` raised it.
    """
    if node.config.dataset_to_prepare or node.member:
        return
    try:
        text = _page(node, revision, state, on_poll)
        path = (job.artifacts(node) / COST_PAGE).relative_to(node.data)
        files.write_below(node.data, path, text)
    except LeaseLostError:
        raise
    except (AgentError, OSError) as error:
        log.warning("page of the run's cost not written", error=str(error))


def _page(node: Node, revision: str, state: str, on_poll: Callable[[], None]) -> str:
    training, now = job.training(node), node.clock.wall()
    table = recording.attempt_table(node, training)
    newest = int((files.read_json(node.directory / LEASE_FILE) or {}).get("token", 0))
    attempts = []
    for token in range(max(1, newest - ATTEMPTS_RETAINED + 1), newest + 1):
        on_poll()
        attempt = table.read(token)
        if attempt is not None and attempt.revision == revision:
            attempts.append(attempt)
    spot: dict[tuple[str, str], list[tuple[float, float]]] = {}
    if types := priced_types(attempts):
        zones, begin = (attempt.zone for attempt in attempts), min(attempt.launched for attempt in attempts)
        try:
            with aws_errors("Spot prices"):
                spot = read_spot_prices(node.clients.ec2(node.config.region), types, zones, begin, now)
        except AgentError as error:  # the page then has On-Demand prices, and says so
            log.warning("Spot prices not read", error=str(error))
    on_poll()
    book = PriceBook(training.prices.on_demand.get, spot, lambda _: training.prices.source)
    timeline = build_timeline(attempts, book, now=now, newest_token=newest)
    account = account_of(timeline, book, at=now, is_over=True)
    return page.markdown(account, training.job, revision, state)


def _instance_dollars(node: Node) -> float | None:
    """Return what this instance costs an hour now; None if that is unknown."""
    option, me, now = recording.purchase_option(node), node.identity, node.clock.wall()
    if option == "on-demand":
        return job.training(node).prices.on_demand.get(me.instance_type)
    if option != SPOT:
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
