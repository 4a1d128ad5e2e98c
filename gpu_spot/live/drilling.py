"""An interruption drill in the rehearsed cloud: a calm market, in which only the drill takes instances."""

from __future__ import annotations

from typing import Final

from moto.fis.models import fis_backends

from gpu_spot.drill.course import OVER_WITHIN, DrillCourse
from gpu_spot.drill.watching import Drill
from gpu_spot.live.cloud import LocalCloud
from gpu_spot.live.rehearsal import fleet_of
from gpu_spot.market.replay.engine import Replay
from gpu_spot.market.replay.groups import GroupShape
from gpu_spot.market.replay.ledger import Span
from gpu_spot.market.rules import TICK_SECONDS, Rules
from gpu_spot.market.supply import placement
from gpu_spot.market.supply.spot import SpotMarket
from gpu_spot.market.supply.trace import PoolTrace
from gpu_spot.nodes import boot
from lambdas.aws import settings
from lambdas.core import names
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes import experiments
from pulumi_on_moto.sandbox import ACCOUNT

_BEFORE: Final = 20
"""Minutes from an empty group to the drill's start: boots take some."""
_POOL: Final = 64
"""Instances that each pool sells: none is ever short."""


def rehearse_drill(cloud: LocalCloud, group: str, drill: Drill, seed: int = 1) -> DrillCourse:
    """Fill a service's group on a calm market, drill it, and watch to the end, minute by minute.

    Raises ``LocalCloudError``, for training jobs too; ``DrillError``.
    """
    view = cloud.group(group)
    if boot.parse(cloud.boot_data(group)).agent.training is not None:
        raise LocalCloudError(
            f"group {group!r} is a training job, allowed: a service's (gpu-spot demo plays jobs)"
        )
    known = settings.read(cloud.clients("ssm"), names.parameter_root(cloud.deployment.stack))[0][group]
    cloud.fill_warm_pools()
    rules = Rules(
        seed=seed,
        warm_instances=len(cloud.warm(group)),
        warm_reuse=cloud.takes_back(group),
        drain_seconds=view.drain_seconds,
    )
    length = int(_BEFORE + OVER_WITHIN // TICK_SECONDS + 2)
    traces = [PoolTrace(zone, TICK_SECONDS, (1,) * (length + 1)) for zone in sorted(view.zones)]
    market = SpotMarket(traces, rules, _POOL)
    pools = placement.assign(market.names, sorted(view.zones), view.sizes)
    shape = GroupShape(pools, known.group.base, known.group.spot_percentage, weights=view.weights)
    fleet = fleet_of(cloud, view, None, rules)
    replay = Replay(market, rules, fleet, shape, known.group.target, start=cloud.clock.now)
    replay.visit(range(length))
    experiments.listen(fis_backends[ACCOUNT][cloud.clients.region], replay.interrupt)
    courses: list[DrillCourse] = []
    over: list[bool] = []

    def see(tick: int, _: Span) -> None:
        if tick == _BEFORE:
            courses.append(drill.start(*drill.plan()))
        elif courses and not drill.follow(courses[0]):
            over.append(True)

    replay.run(length, see, lambda: bool(over))
    return courses[0]
