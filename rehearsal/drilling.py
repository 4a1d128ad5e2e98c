"""An interruption drill in the local cloud, on a Spot market without other interruptions."""

from __future__ import annotations

from typing import Final

from moto.fis.models import fis_backends

from contracts import names
from gpu_spot.drill.progress import DRILL_TIMEOUT_SECONDS, DrillProgress
from gpu_spot.drill.watching import Drill
from lambdas.aws import settings
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply import placement
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes import experiments
from pulumi_on_moto.sandbox import ACCOUNT
from rehearsal import rehearse as rehearsal
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.machines import boot
from rehearsal.machines.process import TrainingProfile

_BEFORE: Final = 20
"""Minutes from an empty group to the start of the drill, for boots."""
_BEFORE_JOB: Final = 60
"""The same for a training job, which first fills its volume and completes some steps."""
_STEPS: Final = 1000
"""Steps of a simulated job, 30 seconds each: more than fit into the drill."""
_POOL: Final = 64
"""Capacity of each pool: more than any group needs."""


def rehearse_drill(cloud: LocalCloud, group: str, drill: Drill, seed: int = 1) -> DrillProgress:
    """Fill a group, run the drill, and poll it every simulated minute until its end.

    The workers of a service are counted; a training job is simulated with the agent on its instances.
    Raises ``LocalCloudError``, also for shared hosts; ``DrillError``.
    """
    view = cloud.group(group)
    agent = boot.parse(cloud.boot_data(group)).agent
    if agent.shared_host is not None:
        raise LocalCloudError(
            f"group {group!r} is a shared host, allowed: the group of a service or training job "
            "(gpu-spot demo rehearses shared hosts)"
        )
    group_settings = settings.read(cloud.clients("ssm"), names.parameter_root(cloud.deployment.stack))[0][
        group
    ]
    cloud.fill_warm_pools()
    rules = Rules(
        seed=seed,
        warm_instances=len(cloud.warm(group)),
        warm_reuse=cloud.takes_back(group),
        drain_seconds=view.drain_seconds,
    )
    before = _BEFORE if agent.training is None else _BEFORE_JOB
    length = int(before + DRILL_TIMEOUT_SECONDS // TICK_SECONDS + 2)
    traces = [PoolTrace(zone, TICK_SECONDS, (1,) * (length + 1)) for zone in sorted(view.zones)]
    market = SpotMarket(traces, rules, _POOL)
    pools = placement.assign(market.names, sorted(view.zones), view.sizes)
    shape = GroupShape(
        pools, group_settings.group.base, group_settings.group.spot_percentage, weights=view.weights
    )
    drills: list[DrillProgress] = []
    over: list[bool] = []

    def on_tick(tick: int, _: Span) -> None:
        if tick == before:
            drills.append(drill.start(*drill.plan()))
        elif drills and not drill.poll(drills[0]):
            over.append(True)

    with rehearsal.simulated(cloud, view, rules, TrainingProfile(steps=_STEPS)) as nodes:
        fleet = rehearsal.fleet_of(cloud, view, nodes, rules)
        replay = Replay(market, rules, fleet, shape, group_settings.group.target, start=cloud.clock.now)
        replay.visit(range(length))
        experiments.listen(fis_backends[ACCOUNT][cloud.clients.region], replay.interrupt)
        replay.run(length, on_tick, lambda: bool(over))
    return drills[0]
