"""Set the stage of a rehearsal: a group of a deployed stack, its market, and who plays its instances."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpu_spot.facts.run import Run, capacity_changes
from gpu_spot.live.cloud import GroupView, LocalCloud
from gpu_spot.live.rehearsal import CloudFleet, TrainingFleet
from gpu_spot.market.replay.engine import Replay
from gpu_spot.market.replay.groups import GroupShape
from gpu_spot.market.replay.ledger import Ledger, Span
from gpu_spot.market.rules import TICK_SECONDS, Rules
from gpu_spot.market.supply import model, placement
from gpu_spot.market.supply.spot import SpotMarket
from gpu_spot.market.supply.trace import PoolTrace
from gpu_spot.nodes import boot, dataset
from gpu_spot.nodes.group import Nodes, playing
from lambdas.aws import settings
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import Registry
from lambdas.aws.settings import GroupSettings
from lambdas.core import names
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.running.clock import Clock
from pulumi_on_moto.sandbox import Clients


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be rehearsed: ``group`` (None: the stack's first), and the market.

    ``traces`` are those of ``files`` (None: drawn from the fitted model for ``hours``), ``pool_size`` is what
    a sample stands for, ``notice`` the share of losses that are announced.
    """

    group: str | None
    hours: float
    files: tuple[Path, ...]
    traces: tuple[PoolTrace, ...] | None
    pool_size: int | None
    notice: float
    seed: int


@dataclass(frozen=True, slots=True)
class Scene:
    """The market of a rehearsal: its source, its traces, and the capacity pools that they stand for."""

    source: Literal["model"] | tuple[str, ...]
    traces: tuple[PoolTrace, ...]
    shape: GroupShape


def rehearse(
    wishes: Wishes, console: Console, clients: Clients, cloud: LocalCloud, clock: Clock, started: float
) -> Run:
    """Replay a market against a group of ``cloud``; ``started`` is when the wall clock began to count.

    Raises ``LocalCloudError``, ``TraceError`` or ``ValueError``, one line each.
    """
    view = _group(cloud, wishes.group)
    stack = cloud.deployment.stack
    group = settings.read(clients("ssm"), names.parameter_root(stack))[0][view.name]
    cloud.fill_warm_pools()
    rules = Rules(
        seed=wishes.seed,
        notice=wishes.notice,
        warm_instances=len(cloud.warm(view.name)),
        drain_seconds=view.drain_seconds,
    )
    scene = _scene(wishes, view, group)
    market = SpotMarket(scene.traces, rules, wishes.pool_size)
    ticks = min(market.ticks, round(wishes.hours * 3600 / TICK_SECONDS))
    if ticks <= rules.warm_up_ticks:
        raise LocalCloudError(
            f"hours is {ticks / 60:g}, more than the first hour (warm-up, not counted) is needed"
        )
    start = clock.now
    with _nodes(clients, clock, cloud.boot_data(view.name)) as nodes:
        fleet = _fleet(clients, cloud, view, nodes, rules)
        replay = Replay(market, rules, fleet, scene.shape, group.group.target, start=start)
        console.print(f"\n[bold]Market[/]: {_told(scene, market)}; rehearsing {ticks / 60:g} h\n")
        ledger = _play(replay, ticks, console)
        if nodes is not None:
            nodes.advance(start + ticks * TICK_SECONDS)
        travels = None if nodes is None else nodes.travels()
    return Run(
        stack=stack,
        group=view.name,
        policy=group.policy.name,
        target=group.group.target,
        start=start,
        hours=ticks * TICK_SECONDS / 3600,
        rules=rules,
        market=scene.source,
        pool_size=market.pool_size,
        pools={name: str(pool) for name, pool in zip(market.names, scene.shape.pools, strict=True)},
        capacities=capacity_changes(market, ticks),
        ledger=ledger,
        resources=tuple((r.type, r.name) for r in cloud.deployment.resources if not r.is_component),
        decisions=tuple(fleet.decisions),
        ticks_played=replay.played,
        wall_seconds=time.perf_counter() - started,
        travels=travels,
    )


def _group(cloud: LocalCloud, name: str | None) -> GroupView:
    if name is not None:
        return cloud.group(name)
    if not cloud.groups():
        stack = cloud.deployment.stack
        raise LocalCloudError(f"stack {stack!r} declares no capacity group, at least one is needed")
    return cloud.groups()[0]


@contextlib.contextmanager
def _nodes(clients: Clients, clock: Clock, boot_data: str) -> Iterator[Nodes | None]:
    """Yield the nodes of a training job, which run the agent; the workers of a service are only counted."""
    agent = boot.parse(boot_data).agent
    if agent.training is None:
        yield None
        return
    if agent.volume is not None and agent.volume.dataset:
        dataset.stand_in(clients, agent.volume.dataset)
    with playing(clients, clock) as nodes:
        yield nodes


def _fleet(
    clients: Clients, cloud: LocalCloud, view: GroupView, nodes: Nodes | None, rules: Rules
) -> CloudFleet:
    tables, dynamodb = cloud.deployment.outputs, clients("dynamodb")
    store = MemoryStore(dynamodb, str(tables["memoryTable"]))
    if nodes is None:
        return CloudFleet(cloud, view.name, store)
    return TrainingFleet(
        cloud,
        view.name,
        store,
        nodes=nodes,
        registry=Registry(dynamodb, str(tables["registryTable"])),
        boots=rules.spot_cold_start,
        warm_boots=rules.on_demand_cold_start,
    )


def _scene(wishes: Wishes, view: GroupView, group: GroupSettings) -> Scene:
    source: Literal["model"] | tuple[str, ...]
    if wishes.traces is None:
        source, traces = "model", model.draw(len(view.zones), wishes.hours, wishes.seed)
    else:
        source, traces = tuple(str(path) for path in wishes.files), wishes.traces
    pools = placement.assign([t.name for t in traces], sorted(view.zones), view.instance_types)
    return Scene(source, traces, GroupShape(pools, group.group.base, group.group.spot_percentage))


def _told(scene: Scene, market: SpotMarket) -> str:
    pools = ", ".join(f"{n} → {p}" for n, p in zip(market.names, scene.shape.pools, strict=True))
    kind = "drawn from the fitted model, no trace was given" if scene.source == "model" else "real traces"
    return f"{kind}: {pools}; {market.pool_size} instances a sample"


def _play(replay: Replay, ticks: int, console: Console) -> Ledger:
    columns = (
        TextColumn("{task.fields[day]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn(
            "[green]{task.fields[ready]}[/]/{task.fields[target]} ready  "
            "[blue]{task.fields[spot]} spot[/]  [yellow]{task.fields[on_demand]} on-demand[/]"
        ),
        TimeElapsedColumn(),
    )
    target = replay.ledger.target
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(
            "", total=ticks, day="day 1 00:00", ready=0, target=target, spot=0, on_demand=0
        )

        def show(tick: int, span: Span) -> None:
            minutes = tick % 1440
            progress.update(
                task,
                completed=tick + span.ticks,
                day=f"day {tick // 1440 + 1} {minutes // 60:02}:{minutes % 60:02}",
                ready=span.ready,
                spot=span.spot,
                on_demand=span.on_demand,
            )

        return replay.run(ticks, show)
