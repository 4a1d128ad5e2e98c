"""Finished rehearsals for report tests, made with the in-memory fleet on a random market."""

from __future__ import annotations

import io
import random
import re
from typing import Final

from rich.console import Console

from gpu_spot.status.decisions import DecisionLine
from lambdas.core.capacity.policies import DEFAULT, build
from lambdas.core.model import Pool, SetDesired, TerminateInstances
from market.replay.engine import Replay
from market.replay.fleet import simulated_group
from market.replay.groups import GroupShape
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from rehearsal.report.summary import render_summary
from rehearsal.results.run import Run
from tests.fleets import RecordingFleet

START: Final = 1_767_225_600.0  # 2026-01-01 00:00 UTC
ZONES: Final = ("us-west-2a", "us-west-2b", "us-west-2c")


def printed(summary: dict[str, object]) -> str:
    """Return a summary as it stands in a terminal, without its frame, spaces joined."""
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as said:
        console.print(render_summary(summary))
    return " ".join(re.sub(r"[│╭╮╰╯]", " ", said.get()).split())


def rehearse(hours: int, *, target: int = 4, notice: float = 0.5, flips: float = 0.06, seed: int = 1) -> Run:
    """Replay a market whose pools open and close by chance, ``flips`` being how likely in five minutes."""
    traces = [
        PoolTrace(zone, 300.0, tuple(_samples(random.Random(f"{zone}/{seed}"), hours * 12, flips)))
        for zone in ZONES
    ]
    rules = Rules(seed=seed, notice=notice)
    market = SpotMarket(traces, rules)
    pools = tuple(Pool("g6.xlarge", zone) for zone in ZONES)
    fleet = RecordingFleet(simulated_group(target, 2 * target), build(DEFAULT))
    replay = Replay(market, rules, fleet, GroupShape(pools), target, start=START)
    ledger = replay.run()
    return Run(
        stack="dev",
        group="inference",
        policy=DEFAULT,
        target=target,
        start=START,
        hours=hours,
        rules=rules,
        market=tuple(f"traces/{zone}.json" for zone in ZONES),
        pool_size=market.pool_size,
        pools=dict(zip(market.names, map(str, pools), strict=True)),
        ledger=ledger,
        resources=(
            ("aws:ec2/vpc:Vpc", "main"),
            ("aws:ec2/subnet:Subnet", "a"),
            ("aws:ec2/subnet:Subnet", "b"),
        ),
        decisions=tuple(
            DecisionLine(at, "inference", tuple(map(_say, decision.actions)), decision.reason)
            for at, decision in fleet.decisions
        ),
        ticks_played=replay.played,
        wall_seconds=1.25,
        hour_price=0.8,
    )


def _samples(chance: random.Random, count: int, flips: float) -> list[int]:
    samples, value = [], 1
    for _ in range(count):
        value ^= chance.random() < flips
        samples.append(int(value))
    return samples


def _say(action: object) -> str:
    match action:
        case SetDesired(side, capacity):
            return f"set {side} to {capacity}"
        case TerminateInstances(side, instance_ids):
            return f"release {len(instance_ids)} of {side}"
        case _:
            return str(action)
