"""An interruption drill in the rehearsed cloud: a calm market, in which only the drill takes instances."""

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
"""Minutes from an empty group to the drill's start: boots take some."""
_BEFORE_JOB: Final = 60
"""The same for a job, which fills its volume first, and is to have something to lose."""
_STEPS: Final = 1000
"""Of a simulated job, 30 seconds each: it is not done before the drill is over."""
_POOL: Final = 64
"""Instances that each pool sells: none is ever short."""


def rehearse_drill(cloud: LocalCloud, group: str, drill: Drill, seed: int = 1) -> DrillProgress:
    """Fill a group on a calm market, drill it, and watch to the end, minute by minute.

    A service's workers are counted, a training job is simulated with the agent on its instances.
    Raises ``LocalCloudError``, for shared hosts too; ``DrillError``.
    """
    view = cloud.group(group)
    agent = boot.parse(cloud.boot_data(group)).agent
    if agent.shared_host is not None:
        raise LocalCloudError(
            f"group {group!r} is a shared host, allowed: a service's or a training job's "
            "(gpu-spot demo plays shared hosts)"
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
