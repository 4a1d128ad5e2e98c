"""A job with a budget in the local cloud: stopped when it is spent, and resumed with a new budget."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from bench.parts.deadline.stack import ROOT, TYPE, ZONE
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.steering import JobControl
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto import load, sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal import rehearse as rehearsal
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.machines.group import playing
from rehearsal.machines.process import TrainingProfile

BUDGET, MORE = 0.25, 1.0
STEPS, STEP_SECONDS = 60, 60.0
_LOOK_EVERY: Final = 5
RESUMED_AT: Final = 75
"""The tick in which people give it more."""


def held() -> dict[str, Any]:
    """Play an hour of work on a budget of less, and let people raise it after a while."""
    config = load(
        ROOT,
        "research",
        {
            "network.zones": [ZONE],
            "training[0].capacity.instanceTypes": [TYPE],
            "training[0].dataset": None,
            "training[0].budget": BUDGET,
        },
    )
    rules = Rules(warm_up_ticks=0)
    profile = TrainingProfile(step_seconds=STEP_SECONDS, steps=STEPS)
    with simulated(START) as clock, sandbox(config.region, rules.seed) as clients:
        cloud = LocalCloud(clients, deployed(clients, config), clock)
        view = cloud.groups()[0]
        reader = JobReader(clients, cloud.deployment.stack, config.region, lambda: clock.now)
        steering = JobControl(clients, cloud.deployment.stack, reader)
        said: list[str] = []
        phases: list[tuple[int, str, str, float]] = []

        def on_tick(tick: int, span: Span) -> None:
            if tick % _LOOK_EVERY:
                return
            job = reader.reports()[0]
            phases.append((tick, job.status.phase, job.status.reason, job.snapshot.spent))
            if tick < RESUMED_AT or said:
                return
            for budget in (None, BUDGET / 2, MORE):
                try:
                    said.append(steering.resume(view.name, budget))
                except JobError as error:
                    said.append(str(error))

        with playing(clients, clock, profile) as nodes:
            fleet = rehearsal.fleet_of(cloud, view, nodes, rules)
            # Room that comes and goes is a change, so that minutes are played in which the job is held.
            trace = PoolTrace("always there", 60.0, (1, 2) * 90)
            market = SpotMarket((trace,), rules, None)
            replay = Replay(market, rules, fleet, GroupShape((Pool(TYPE, ZONE),)), 1, start=START)
            replay.run(market.ticks, on_tick, lambda: bool(phases) and phases[-1][1] == "done")
            return {
                "said": said,
                "phases": phases,
                "journal": [
                    ((entry.at - START) / 60, entry.kind, entry.step)
                    for entry in nodes.journal.entries
                    if entry.kind in ("running", "stopped")
                ],
                "decisions": [asdict(decision) for decision in fleet.decisions if decision.actions],
            }
