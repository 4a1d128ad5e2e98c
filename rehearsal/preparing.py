"""Simulation of a dataset preparation group before the rehearsal of a job that needs the dataset."""

from __future__ import annotations

from typing import Final

from contracts import names
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.fleets import CloudFleet
from rehearsal.machines.group import Nodes

_HOURS: Final = 6


class _PreparedError(Exception):
    """The dataset is prepared."""


def play(cloud: LocalCloud, nodes: Nodes, fleet: CloudFleet) -> None:
    """Let a group prepare its dataset on Spot without interruptions.

    Raises ``LocalCloudError`` if it does not finish in time.
    """
    view, ssm = cloud.group(fleet.group), cloud.clients("ssm")
    parameter = names.group_parameter(cloud.deployment.stack, view.name, names.PARAMETER_PREPARED)
    zone = min(view.zones)
    trace = PoolTrace(zone, float(TICK_SECONDS), (1,) * round(_HOURS * 3600 / TICK_SECONDS))
    rules = Rules(warm_up_ticks=0)
    shape = GroupShape((Pool(view.instance_types[0], zone),))
    before = ssm.get_parameter(Name=parameter)["Parameter"]["Value"]

    def watch(tick: int, span: Span) -> None:
        is_prepared = ssm.get_parameter(Name=parameter)["Parameter"]["Value"] != before
        if is_prepared and not cloud.alive(view.name):
            raise _PreparedError

    try:
        Replay(SpotMarket([trace], rules, 1), rules, fleet, shape, 1, start=cloud.clock.now).run(
            on_tick=watch
        )
    except _PreparedError:
        nodes.begin()
        return
    raise LocalCloudError(f"group {view.name!r} did not prepare its dataset within {_HOURS} hours")
