"""``gpu-spot demo``: deploy a stack into the local cloud and keep its workers alive through a spot market."""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpu_spot import project
from gpu_spot.local import server, stackfile, tree
from gpu_spot.local.clock import Clock, simulated
from gpu_spot.local.cloud import GroupView, LocalCloud
from gpu_spot.local.errors import LocalCloudError
from gpu_spot.local.program import run as deploy
from gpu_spot.local.record import Deployment
from gpu_spot.local.sandbox import Clients, sandbox
from gpu_spot.market import model, placement, trace
from gpu_spot.market.engine import Replay
from gpu_spot.market.groups import GroupShape
from gpu_spot.market.ledger import Span
from gpu_spot.market.rules import TICK_SECONDS, Rules
from gpu_spot.market.spot import SpotMarket
from gpu_spot.market.trace import PoolTrace
from gpu_spot.rehearsal import CloudFleet
from gpu_spot.report.page import render
from gpu_spot.report.picture import write_plot
from gpu_spot.report.run import Run, capacity_changes
from gpu_spot.report.summary import render_summary, summarise
from lambdas.aws import settings
from lambdas.aws.memory import MemoryStore
from lambdas.core import names

START: Final = 1_767_571_200.0
"""Tick 0 of every rehearsal: 2026-01-05 00:00 UTC, a Monday. Fixed, so that runs can be compared."""

HOURS: Final = 48.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The market of a rehearsal: its source, its traces, and the capacity pools that they stand for."""

    source: Literal["model"] | tuple[str, ...]
    traces: tuple[PoolTrace, ...]
    shape: GroupShape


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("demo", help="deploy a stack locally and replay a spot market against it")
    parser.add_argument("--stack", default="dev", help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="DIR|FILE",
        help="spot traces to replay, one capacity pool a file (default: drawn from the fitted model)",
    )
    parser.add_argument(
        "--hours", type=_positive, default=HOURS, help=f"simulated hours (default: {HOURS:g})"
    )
    parser.add_argument("--target", type=_count, help="instances to keep ready (default: the stack's)")
    parser.add_argument(
        "--pool-size",
        type=_count,
        help="instances that a trace sample stands for (default: 8 for 0/1 traces)",
    )
    parser.add_argument(
        "--notice", type=_fraction, default=0.9, help="share of losses announced 120 s ahead (default: 0.9)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of everything that chance decides (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder of the report")
    parser.add_argument("--keep", action="store_true", help="leave the local cloud open for the AWS CLI")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deploy, replay, report; raise ``LocalCloudError``, ``TraceError`` or ``ValueError``, one line each."""
    console = Console()
    config = stackfile.load(project.find(), args.stack, _overrides(args))
    given = trace.load(args.trace) if args.trace else None
    with simulated(START) as clock, sandbox(config.region, args.seed) as clients:
        started = time.perf_counter()
        deployment = deploy(clients, config)
        console.print(tree.render(deployment))
        cloud = LocalCloud(clients, deployment, clock)
        try:
            finished = _rehearse(args, console, clients, cloud, clock, given, started)
            _report(args.out, finished, console)
            if args.keep:
                _keep(console, config.region)
        finally:
            cloud.close()
    return 0


def _rehearse(
    args: argparse.Namespace,
    console: Console,
    clients: Clients,
    cloud: LocalCloud,
    clock: Clock,
    given: tuple[PoolTrace, ...] | None,
    started: float,
) -> Run:
    view = _first_group(cloud.groups(), cloud.deployment)
    group = settings.read(clients("ssm"), names.parameter_root(args.stack))[0][view.name]
    rules = Rules(
        seed=args.seed,
        notice=args.notice,
        on_demand_cold_start=60.0 if cloud.fill_warm_pools() else 180.0,
        drain_seconds=view.drain_seconds,
    )
    scene = _scene(args, view, given, group.group.base, group.group.spot_percentage)
    market = SpotMarket(scene.traces, rules, args.pool_size)
    ticks = min(market.ticks, round(args.hours * 3600 / TICK_SECONDS))
    if ticks <= rules.warm_up_ticks:
        raise LocalCloudError(
            f"hours is {ticks / 60:g}, more than the first hour (warm-up, not counted) is needed"
        )
    fleet = CloudFleet(cloud, view.name, MemoryStore(clients("dynamodb"), _memory_table(cloud.deployment)))
    replay = Replay(market, rules, fleet, scene.shape, group.group.target, start=clock.now)
    console.print(f"\n[bold]Market[/]: {_told(scene, market)}; rehearsing {ticks / 60:g} h\n")
    ledger = _play(replay, ticks, console)
    return Run(
        stack=args.stack,
        group=view.name,
        policy=group.policy.name,
        target=group.group.target,
        start=START,
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
    )


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """A target given by hand brings its head-room and its warm instances along."""
    if args.target is None:
        return {}
    capacity = "services[0].capacity"
    return {
        f"{capacity}.target": args.target,
        f"{capacity}.max": 2 * args.target,
        f"{capacity}.fallback.warmInstances": args.target,
    }


def _first_group(groups: Sequence[GroupView], deployment: Deployment) -> GroupView:
    if not groups:
        raise LocalCloudError(
            f"stack {deployment.stack!r} declares no capacity group, at least one is needed"
        )
    return groups[0]


def _scene(
    args: argparse.Namespace,
    view: GroupView,
    given: tuple[PoolTrace, ...] | None,
    base: int,
    spot_percentage: int,
) -> Scene:
    source: Literal["model"] | tuple[str, ...]
    if given is None:
        source, traces = "model", model.draw(len(view.zones), args.hours, args.seed)
    else:
        source, traces = tuple(str(path) for path in args.trace), given
    pools = placement.assign([t.name for t in traces], sorted(view.zones), view.instance_types)
    return Scene(source, traces, GroupShape(pools, base, spot_percentage))


def _told(scene: Scene, market: SpotMarket) -> str:
    pools = ", ".join(f"{n} → {p}" for n, p in zip(market.names, scene.shape.pools, strict=True))
    kind = "drawn from the fitted model, no trace was given" if scene.source == "model" else "real traces"
    return f"{kind}: {pools}; {market.pool_size} instances a sample"


def _play(replay: Replay, ticks: int, console: Console) -> Any:
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


def _report(out: Path, finished: Run, console: Console) -> None:
    summary = summarise(finished)
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (out / "report.html").write_text(render(finished), encoding="utf-8")
    write_plot(finished, out / "plot.svg")
    console.print(render_summary(summary))
    for name in ("summary.json", "report.html", "plot.svg"):
        console.print(str(out / name), soft_wrap=True)


def _keep(console: Console, region: str) -> None:
    """Serve the local cloud until the user ends it."""
    with server.serve() as endpoint:
        console.print("\nThe local cloud stays open; look around in it with the AWS CLI, Ctrl-C ends it:")
        console.print(server.command_line(endpoint, region), soft_wrap=True, markup=False)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            console.print("closed")


def _memory_table(deployment: Deployment) -> str:
    return str(deployment.outputs["memoryTable"])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _positive(text: str) -> float:
    value = _float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours above 0")
    return value


def _fraction(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
