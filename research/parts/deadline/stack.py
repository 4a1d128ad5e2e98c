"""Jobs with a deadline in a rehearsal with the deployed controller, compared with their replay.

One pool, as in the replay: one type in one zone. The job's process reports its steps, the agent measures
them, the registry stores them, the controller decides; the market has the rehearsal's injected faults. The
replay uses the restart time measured there and, like the controller, begins without experience.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from gpu_spot.declared.stackfile import load
from lambdas.core.capacity.policies.by_deadline import (
    DEFAULT_RESTART_OVERHEAD_SECONDS,
    DEFAULT_UNSAVED_SECONDS,
)
from lambdas.core.deadline.experience import Experience
from lambdas.core.deadline.model import Job
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.rules import HOSTILE, TICK_SECONDS, Rules, ticks
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal import rehearse as rehearsal
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.process import TrainingProfile
from research.parts import page
from research.parts.deadline.jobs import RATIOS, SPOT_PRICE
from research.simulation.deadline.policies import DEFAULT, build
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.simulate import simulate

ROOT: Final = Path(__file__).parents[3]
ZONE, TYPE = "us-west-2a", "g6.xlarge"
HOURS: Final = 6.0
STEP_SECONDS: Final = 30.0
SPARE_HOURS: Final = 2.0
"""Hours after its deadline for which a late job is still simulated."""


@dataclass(frozen=True)
class Scenario:
    """One job: ``hours`` of compute, due in ``deadline_hours``, in the pool of a trace."""

    trace: PoolTrace
    hours: float
    deadline_hours: float


@dataclass(frozen=True)
class StackJob:
    """The result of one job; costs in On-Demand hours, times in hours after the start.

    ``done`` is None if it was not done ``SPARE_HOURS`` after the deadline. ``changeovers`` is the number of
    starts that the controller observed, ``changeover`` their mean overhead in seconds. ``decisions`` are
    those with actions: time, action, reason.
    """

    hours: float
    deadline_hours: float
    done: float | None
    cost: float
    replayed: float
    replay_late: bool
    changeovers: int
    restart_seconds: float
    interruptions: int
    decisions: tuple[tuple[float, tuple[str, ...], str], ...]

    @property
    def late(self) -> bool:
        """Whether it missed its deadline."""
        return self.done is None or self.done > self.deadline_hours


def scenarios(traces: Sequence[PoolTrace], hours: float = HOURS) -> list[Scenario]:
    """Return a job for each deadline ÷ compute and each pool, from the middle of its trace."""
    halves = [replace(trace, samples=trace.samples[len(trace.samples) // 2 :]) for trace in traces]
    return [Scenario(trace, hours, hours * ratio) for ratio, trace in product(reversed(RATIOS), halves)]


def play(scenario: Scenario) -> StackJob:
    """Simulate one job; a process can hold one deployment."""
    profile = TrainingProfile(step_seconds=STEP_SECONDS, steps=round(scenario.hours * 3600 / STEP_SECONDS))
    end = START + scenario.deadline_hours * 3600
    config = load(
        ROOT,
        "research",
        {
            "network.zones": [ZONE],
            "training[0].capacity.instanceTypes": [TYPE],
            "training[0].capacity.fallback": {"enabled": True},
            "training[0].dataset": None,
            "training[0].deadline": datetime.fromtimestamp(end, UTC).isoformat(),
        },
    )
    rules = Rules(spot_price=SPOT_PRICE, warm_up_ticks=0, **HOSTILE)
    with simulated(START) as clock, sandbox(config.region, rules.seed) as clients:
        cloud = LocalCloud(clients, deployed(clients, config), clock)
        view = cloud.groups()[0]
        with playing(clients, clock, profile) as nodes:
            fleet = rehearsal.fleet_of(cloud, view, nodes, rules)
            market = SpotMarket((scenario.trace,), rules, None)
            replay = Replay(market, rules, fleet, GroupShape((Pool(TYPE, ZONE),)), 1, start=START)
            ledger = replay.run(
                ticks((scenario.deadline_hours + SPARE_HOURS) * 3600),
                is_over=lambda: _done(nodes, profile) is not None and not replay.instances,
            )
            done = _done(nodes, profile)
            took = fleet.store.load(view.name).memory.job.restart_overheads
    restart_seconds = took.total / took.count if took.count else DEFAULT_RESTART_OVERHEAD_SECONDS
    replayed = simulate(
        PoolRuns.of_trace(scenario.trace),
        0,
        Job(
            compute=scenario.hours * 3600,
            deadline=scenario.deadline_hours * 3600,
            restart_overhead=round(restart_seconds / TICK_SECONDS) * TICK_SECONDS,
            spot_price=SPOT_PRICE,
            checkpoint=DEFAULT_UNSAVED_SECONDS,
        ),
        build(DEFAULT),
        experience=Experience(is_measured=True),
    )
    return StackJob(
        hours=scenario.hours,
        deadline_hours=scenario.deadline_hours,
        done=None if done is None else (done - START) / 3600,
        cost=sum(span.cost * span.ticks for span in ledger.spans) * TICK_SECONDS / 3600,
        replayed=replayed.cost,
        replay_late=replayed.late,
        changeovers=took.count,
        restart_seconds=restart_seconds,
        interruptions=int(ledger.counts.get("interruption", 0)),
        decisions=tuple(((d.at - START) / 3600, d.actions, d.reason) for d in fleet.decisions if d.actions),
    )


def _done(nodes: Nodes, profile: TrainingProfile) -> float | None:
    """Return the time of the process's last step, None before."""
    entries = nodes.journal.entries
    return next((e.at for e in entries if e.kind == "stopped" and e.step == profile.steps), None)


def figures(jobs: Sequence[StackJob]) -> dict[str, Any]:
    """Return their part of ``deadline.json``; the mean cost ratio has equal weight for each job."""
    starts = sum(job.changeovers for job in jobs)
    return {
        "stack_jobs": len(jobs),
        "stack_misses": sum(job.late for job in jobs),
        "stack_cost_vs_replay": round(fmean(job.cost / job.replayed for job in jobs), 4),
        "stack_replay_misses": sum(job.replay_late for job in jobs),
        "stack_changeover_seconds": round(
            sum(job.changeovers * job.restart_seconds for job in jobs) / max(1, starts), 1
        ),
        "stack_interruptions": sum(job.interruptions for job in jobs),
        "stack_by_ratio": {f"{ratio}": _of_ratio(jobs, ratio) for ratio in RATIOS},
    }


def _of_ratio(jobs: Sequence[StackJob], ratio: float) -> dict[str, float]:
    these = [job for job in jobs if job.deadline_hours / job.hours == ratio]
    if not these:
        return {}
    return {
        "jobs": len(these),
        "misses": sum(job.late for job in these),
        "cost_vs_on_demand": round(fmean(job.cost / job.hours for job in these), 4),
        "cost_vs_replay": round(fmean(job.cost / job.replayed for job in these), 4),
        "least_hours_before": round(
            min(job.deadline_hours - (job.done or job.deadline_hours) for job in these), 2
        ),
    }


def page_part(figures: Mapping[str, Any]) -> str:
    """Return this part of the page."""
    columns = {
        "deadline ÷ compute": "{ratio}",
        "jobs": "{jobs}",
        "missed": "{misses}",
        "cost ÷ on-demand": "{cost_vs_on_demand:.3f}",
        "cost ÷ replay": "{cost_vs_replay:.3f}",
        "before": "{least_hours_before:.1f}",
    }
    rows = [{"ratio": ratio, **row} for ratio, row in figures["stack_by_ratio"].items() if row]
    return "\n\n".join(
        (
            "### Through the controller",
            f"{figures['stack_jobs']} jobs of {HOURS:g} h in the rehearsal, one pool each: a deployed stack "
            f"with `training[].deadline`, the agent's code on simulated machines, Spot at {SPOT_PRICE}, "
            f"injected faults. {figures['stack_misses']} deadlines missed, {figures['stack_interruptions']} "
            f"interruptions; a restart took {figures['stack_changeover_seconds']:.0f} s (mean). Cost ÷ "
            "replay of the same job, which knows the compute, has that restart time and no experience: "
            f"{figures['stack_cost_vs_replay']:.3f} (mean). *Before*: minimum hours between the last step "
            "and the deadline.",
            page.table_of(columns, rows),
        )
    )
