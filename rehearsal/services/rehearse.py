"""A rehearsal of all services of a stack that form a chain: real workers, one broker, one client.

Each service has its own group, market and replay; the replays advance in turn, tick by tick, and the deployed
functions decide for all groups.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import names
from contracts.agent.config import Service
from lambdas.aws import settings
from lambdas.aws.settings import GroupSettings
from market.replay.engine import Replay
from market.rules import HOSTILE, TICK_SECONDS, Rules
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.machines import boot
from rehearsal.machines.real.broker import RabbitServer
from rehearsal.rehearse import ProgressListener, RehearsalOptions, RehearsalSetup, fleet_of, scripted_setup
from rehearsal.results.run import Run, capacity_changes
from rehearsal.results.serving import ReplyWaits, Sample, Served, ServedGroup
from rehearsal.services.fleet import ServedFleet
from rehearsal.services.hosts import Processes, RealService
from rehearsal.services.traffic import Traffic
from rehearsal.services.world import PACE, WARM_UP_TICKS, rotate_closures

_VARIABLES: Final = {"OCR_MODEL": "numpy"}
"""Variables in place of the stack file's: this machine may lack Keras."""


@dataclass(frozen=True)
class _Group:
    """A service of the rehearsal."""

    view: GroupView
    settings: GroupSettings
    service: RealService
    fleet: ServedFleet
    setup: RehearsalSetup
    replay: Replay


def rehearse_services(
    options: RehearsalOptions, cloud: LocalCloud, listener: ProgressListener, started: float
) -> Run:
    """Run the services whose code is in the folder ``options.workers``; report ``options.group`` in full.

    ``started`` is the start of the wall time (perf_counter). Raises ``LocalCloudError``, one line.
    """
    assert options.workers is not None
    services = _services(cloud, options.workers)
    if options.group not in services:
        raise LocalCloudError(
            f"the group {options.group} has no queue or no code in {options.workers.name}, "
            f"allowed with --service: {', '.join(services) or 'none'}"
        )
    cloud.fill_warm_pools()
    start = cloud.clock.now
    with _processes(options.workers, services) as (traffic, real):
        groups = [
            _group(cloud, options, name, real[name], start)
            for name in sorted(services, key=lambda name: name != options.group)
        ]
        for group in groups:
            group.fleet.fleets.extend(member.fleet for member in groups)
        listener.begin(groups[0].setup)
        samples = _replay(groups, traffic, listener, start)
        served = _account(groups, traffic, samples)
    main = groups[0]
    ledger, market = main.replay.ledger, main.setup.market
    return Run(
        stack=cloud.deployment.stack,
        group=main.view.name,
        policy=main.settings.policy.name,
        target=main.setup.target,
        start=start,
        hours=main.setup.ticks * TICK_SECONDS / 3600,
        rules=main.replay.rules,
        market=main.setup.source,
        pool_size=market.pool_size,
        pools={name: str(pool) for name, pool in zip(market.names, main.setup.shape.pools, strict=True)},
        capacities=capacity_changes(market, main.setup.ticks),
        ledger=ledger,
        resources=tuple((r.type, r.name) for r in cloud.deployment.resources if not r.is_component),
        decisions=tuple(main.fleet.decisions),
        ticks_played=main.replay.played,
        wall_seconds=time.perf_counter() - started,
        served=served,
    )


def _services(cloud: LocalCloud, code: Path) -> dict[str, Service]:
    """Return the services of the stack whose module is in the folder ``code``, by group."""
    services = {}
    for view in cloud.groups():
        service = boot.parse(cloud.boot_data(view.name)).agent.service
        if service is None or service.queue is None or len(service.command) < 2:
            continue
        if (code / f"{service.command[1].partition(':')[0]}.py").exists():
            services[view.name] = service
    return services


@contextlib.contextmanager
def _processes(
    code: Path, services: Mapping[str, Service]
) -> Iterator[tuple[Traffic, dict[str, RealService]]]:
    """Start a broker; yield the client, and the services without instances."""
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="gpu-spot-service-", ignore_cleanup_errors=True)
            )
        )
        (folder / "broker").mkdir()
        broker = RabbitServer(folder / "broker")
        stack.callback(broker.remove)
        broker.start()
        processes = Processes(code, folder)
        real = {}
        for name, service in services.items():
            real[name] = RealService(service, processes, folder, broker.url, _VARIABLES)
            stack.callback(real[name].close)
        yield stack.enter_context(contextlib.closing(Traffic(processes, folder, broker.url))), real


def _group(
    cloud: LocalCloud, options: RehearsalOptions, name: str, service: RealService, start: float
) -> _Group:
    view = cloud.group(name)
    stack = cloud.deployment.stack
    group = settings.read(cloud.clients("ssm"), names.parameter_root(stack))[0][name]
    rules = Rules(
        seed=options.seed,
        notice=options.notice,
        warm_instances=len(cloud.warm(name)),
        warm_reuse=cloud.takes_back(name),
        drain_seconds=view.drain_seconds,
        warm_up_ticks=WARM_UP_TICKS,
        **HOSTILE,
    )
    traces = rotate_closures(view.zones, options.hours)
    setup = scripted_setup(traces, options, view, group, rules)
    fleet = ServedFleet.of(
        fleet_of(cloud, view, None, rules),
        service,
        rules,
        start,
        setup.target,
        office_host=next(iter(group.config.on_premises_hosts), ""),
    )
    replay = Replay(setup.market, rules, fleet, setup.shape, setup.target, start=start)
    return _Group(view, group, service, fleet, setup, replay)


def _replay(
    groups: list[_Group], traffic: Traffic, listener: ProgressListener, start: float
) -> tuple[Sample, ...]:
    """Advance the replays in turn; return the samples of each tick since the client's start."""
    samples = []
    replays = [group.replay.steps(group.setup.ticks) for group in groups]
    traffic.start_time(start)
    for tick in range(groups[0].setup.ticks):
        now = start + tick * TICK_SECONDS
        traffic.advance(now)
        if tick == WARM_UP_TICKS:
            traffic.begin()
        for group in groups:
            group.fleet.report(now)
        for number, steps in enumerate(replays):
            span = next(steps)
            if number == 0:
                listener.on_tick(tick, span)
        workers = {group.view.name: group.service.ready_workers for group in groups}
        samples.append(Sample(tick, traffic.status().waiting, workers))
    return tuple(samples)


def _account(groups: list[_Group], traffic: Traffic, samples: tuple[Sample, ...]) -> Served:
    status = traffic.finish()
    served_groups = [_served(group) for group in groups]
    quantiles = {int(percent): wait for percent, wait in status.quantiles.items()}
    return Served(
        pace=PACE,
        requests=status.requests,
        answered=status.answered,
        lost=status.requests - status.answered,
        wrong=status.wrong,
        sources=status.sources,
        failed_calls=status.failed_calls,
        withheld_calls=status.withheld_calls,
        waits=ReplyWaits(
            quantiles.get(50, 0.0), quantiles.get(95, 0.0), quantiles.get(99, 0.0), status.longest_wait
        ),
        groups=served_groups,
        samples=samples,
    )


def _served(group: _Group) -> ServedGroup:
    drained, overdue, killed = group.service.finish()
    runs, ledger = group.service.runs(), group.replay.ledger
    counts, spans = ledger.counts, list(ledger.since_warm_up())
    return ServedGroup(
        name=group.view.name,
        command=group.service.command,
        target=group.setup.target,
        runs=runs.by_origin,
        unmarked_duplicates=runs.unmarked_duplicates,
        run_again=runs.repeated,
        came_back=runs.came_back,
        drained=drained,
        overdue=overdue,
        killed=killed,
        interruptions=counts.get("interruption", 0),
        unannounced=counts.get("unannounced", 0),
        spot_starts=counts.get("launch-spot", 0),
        on_demand_starts=counts.get("launch-on-demand", 0),
        paid=sum(span.cost * span.ticks for span in spans) * TICK_SECONDS / 3600,
        all_on_demand=sum(span.target * span.ticks for span in spans) * TICK_SECONDS / 3600,
    )
