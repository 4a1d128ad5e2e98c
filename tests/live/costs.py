"""A job that loses its instance: its account against the simulation's own bill, as JSON values."""

from __future__ import annotations

from typing import Any

from moto.ec2.models import ec2_backends

from contracts.agent.names import COST_PAGE
from gpu_spot.jobs.reader import JobReader
from gpu_spot.jobs.report import to_json
from market.rules import TICK_SECONDS, Rules
from pulumi_on_moto.fixes.ec2 import spot_prices
from pulumi_on_moto.sandbox import ACCOUNT
from rehearsal.machines.process import TrainingProfile
from tests.e2e.world import START
from tests.live.moves import MINUTES, ONE_BY_ONE, SEED, SPOT_ALONE, STEPS, ZONES, market, research

PRICES = (0.2, 0.3, 0.4)
"""Dollars an hour of Spot in each zone."""


def accounted() -> dict[str, Any]:
    """Play `moves.played`, with another Spot price in each zone; return both accounts."""
    with research(SPOT_ALONE, TrainingProfile(steps=STEPS)) as (world, nodes, data):
        replay = market(world, nodes, Rules(seed=SEED, notice=0.5, warm_up_ticks=0), ONE_BY_ONE)
        quoted = {("g6.xlarge", zone): price for zone, price in zip(ZONES, PRICES, strict=True)}
        spot_prices.quote(ec2_backends[ACCOUNT][world.clients.region], quoted)
        so_far: list[dict[str, Any]] = []
        training = data.agent.training
        assert training is not None

        def reader() -> JobReader:
            stack = world.deployment.stack
            return JobReader(world.clients, stack, world.clients.region, lambda: world.clock.now)

        def on_tick(tick: int, _: object) -> None:
            if tick >= MINUTES // 2 and not so_far:
                so_far.append(to_json(reader().report("resnet")))

        ledger = replay.run(on_tick=on_tick)
        nodes.advance(START + MINUTES * TICK_SECONDS)
        [volume] = world.clients("ec2").describe_volumes(
            Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
        )["Volumes"]
        folder = nodes.disks.folder(volume["VolumeId"]) / "artifacts" / training.job
        return {
            "account": to_json(reader().report("resnet"))["account"],
            "so_far": so_far[0]["account"],
            "page": (folder / COST_PAGE).read_text(),
            "spot_hours": sum(one.spot * one.ticks for one in ledger.spans) * TICK_SECONDS / 3600,
            "on_demand_hours": sum(one.on_demand * one.ticks for one in ledger.spans) * TICK_SECONDS / 3600,
            "steps_lost": [move.steps_lost for move in nodes.migrations().moves],
        }
