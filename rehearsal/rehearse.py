"""A rehearsal: one group of a deployed stack on a simulated Spot market, from the first tick to the last."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts import names
from gpu_spot.jobs.reader import JobReader
from infra.catalogue import on_demand_prices
from lambdas.aws import settings
from lambdas.aws.memory import MemoryStore
from lambdas.aws.settings import GroupSettings
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import HOSTILE, TICK_SECONDS, Rules
from market.supply import drawn_market, placement
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal import tenancy
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.fleets import CloudFleet, TrainingFleet
from rehearsal.machines import boot, shared
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.node import SimulatedNode
from rehearsal.machines.tenants.node import HostNode
from rehearsal.results.run import Run


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """Options of a rehearsal: ``group`` (None: the stack's first) and the market.

    ``traces`` are those of ``files`` (None: drawn from the fitted model for ``hours``), ``pool_size`` is the
    number of instances of a sample, ``notice`` the share of interruptions with a notice.
    """

    group: str | None
    hours: float
    files: tuple[Path, ...]
    traces: tuple[PoolTrace, ...] | None
    pool_size: int | None
    notice: float
    seed: int


@dataclass(frozen=True, slots=True)
class RehearsalSetup:
    """Market and group of a rehearsal of ``ticks`` ticks; ``target`` is the group's target."""

    source: Literal["model"] | tuple[str, ...]
    market: SpotMarket
    shape: GroupShape
    target: int
    ticks: int


class ProgressListener:
    """Listener for the progress of a rehearsal; this one does nothing."""

    def begin(self, setup: RehearsalSetup) -> None:
        """Process the start of the rehearsal."""

    def on_tick(self, tick: int, span: Span) -> None:
        """Process a simulated tick; ``span`` is the state until the next one."""


def rehearse(
    options: RehearsalOptions,
    cloud: LocalCloud,
    listener: ProgressListener,
    *,
    job: type[SimulatedNode] = SimulatedNode,
    is_over: Callable[[], bool] = lambda: False,
) -> Run:
    """Run a market against a group of ``cloud``, to its end or until ``is_over``.

    ``job`` is the kind of a training job's nodes.
    Raises ``LocalCloudError``, ``TraceError`` or ``ValueError``, one line each.
    """
    started = time.perf_counter()
    view = _group(cloud, options.group)
    stack = cloud.deployment.stack
    group = settings.read(cloud.clients("ssm"), names.parameter_root(stack))[0][view.name]
    cloud.fill_warm_pools()
    rules = Rules(
        seed=options.seed,
        notice=options.notice,
        warm_instances=len(cloud.warm(view.name)),
        warm_reuse=cloud.takes_back(view.name),
        drain_seconds=view.config.drain_seconds,
        **HOSTILE,
    )
    setup = _setup(options, view, group, rules)
    hour_price = _hour_price(setup.shape, cloud.clients.region)
    market, ticks = setup.market, setup.ticks
    with _nodes(cloud, view, job) as nodes:
        start = cloud.clock.now
        fleet = fleet_of(cloud, view, nodes, rules)
        replay = Replay(market, rules, fleet, setup.shape, setup.target, start=start)
        listener.begin(setup)
        ledger = replay.run(ticks, listener.on_tick, is_over)
        ticks = ledger.spans[-1].tick + ledger.spans[-1].ticks
        tenants = migrations = account = None
        if nodes is not None:
            nodes.advance(start + ticks * TICK_SECONDS)
            if is_shared(cloud, view.name):
                tenants = tenancy.tenancy_account(cloud, view, nodes, ledger, hour_price)
            else:
                reader = JobReader(cloud.clients, stack, cloud.clients.region, lambda: cloud.clock.now)
                migrations, account = nodes.migrations(), reader.report(view.name)
    return Run(
        stack=stack,
        group=view.name,
        policy=group.policy.name,
        target=setup.target,
        start=start,
        hours=ticks * TICK_SECONDS / 3600,
        rules=rules,
        market=setup.source,
        pool_size=market.pool_size,
        pools={name: str(pool) for name, pool in zip(market.names, setup.shape.pools, strict=True)},
        ledger=ledger,
        resources=tuple((r.type, r.name) for r in cloud.deployment.resources if not r.is_component),
        decisions=tuple(fleet.decisions),
        ticks_played=replay.played,
        wall_seconds=time.perf_counter() - started,
        hour_price=hour_price,
        migrations=migrations,
        job=account,
        tenancy=tenants,
    )


def _hour_price(shape: GroupShape, region: str) -> float | None:
    """Return the lowest On-Demand price of the ledger's unit, a slot for an hour; None if none is known."""
    prices = [on_demand_prices.price(pool.instance_type, region) for pool in shape.pools]
    by_slot = [usd / shape.slots_of(n) for n, usd in enumerate(prices) if usd is not None]
    return min(by_slot, default=None)


def is_shared(cloud: LocalCloud, group: str | None) -> bool:
    """Return whether the group (None: the stack's first) is a shared host."""
    return boot.parse(cloud.boot_data(_group(cloud, group).name)).agent.shared_host is not None


def _group(cloud: LocalCloud, name: str | None) -> GroupView:
    if name is not None:
        return cloud.group(name)
    if not cloud.groups():
        stack = cloud.deployment.stack
        raise LocalCloudError(f"stack {stack!r} has no capacity group; declare one")
    return next(view for view in cloud.groups() if view.config.prepared_by != view.name)


@contextlib.contextmanager
def _nodes(cloud: LocalCloud, view: GroupView, job: type[SimulatedNode]) -> Iterator[Nodes | None]:
    """Yield nodes that run the agent of a job or shared host; None for a service, whose workers are counted.

    A dataset that the job needs is there.
    """
    agent = boot.parse(cloud.boot_data(view.name)).agent
    if agent.training is None and agent.shared_host is None:
        yield None
        return
    if agent.training is not None and agent.training.nodes is not None:
        raise LocalCloudError(
            f"group {view.name!r} has nodes, which cannot be rehearsed; use a job on one "
            "instance, or experiments"
        )
    if view.config.prepared_by:
        raise LocalCloudError(
            f"group {view.name!r} has prepare, which cannot be rehearsed; use a job whose dataset exists"
        )
    if agent.training is not None and agent.volume is not None and agent.volume.dataset:
        shared.stand_in(cloud.clients, agent.volume.dataset)
    with playing(cloud.clients, cloud.clock, kind=HostNode if agent.shared_host else job) as nodes:
        yield nodes


def fleet_of(cloud: LocalCloud, view: GroupView, nodes: Nodes | None, rules: Rules) -> CloudFleet:
    """Return the fleet of a group; with ``nodes`` that of a job, whose agents run on them."""
    tables, dynamodb = cloud.deployment.outputs, cloud.clients("dynamodb")
    store = MemoryStore(dynamodb, str(tables["memoryTable"]))
    if nodes is None:
        return CloudFleet(cloud, view.name, store)
    return TrainingFleet(cloud, view.name, store, nodes, rules.spot_cold_start, rules.on_demand_cold_start)


def _setup(options: RehearsalOptions, view: GroupView, group: GroupSettings, rules: Rules) -> RehearsalSetup:
    source: Literal["model"] | tuple[str, ...]
    if options.traces is None:
        source, types = "model", view.sizes
        traces = drawn_market.draw(len(view.zones) * len(types), options.hours, options.seed)
    else:
        types = view.instance_types
        source, traces = tuple(str(path) for path in options.files), options.traces
    pools = placement.assign([t.name for t in traces], sorted(view.zones), types)
    market = SpotMarket(traces, rules, options.pool_size)
    ticks = min(market.ticks, round(options.hours * 3600 / TICK_SECONDS))
    if ticks <= rules.warm_up_ticks:
        raise LocalCloudError(
            f"hours must be more than the warm-up of {rules.warm_up_ticks} minutes, not {ticks / 60:g}"
        )
    shape = GroupShape(
        pools, group.group.config.base, group.group.config.spot_percentage, weights=view.weights
    )
    return RehearsalSetup(source, market, shape, group.group.target, ticks)
