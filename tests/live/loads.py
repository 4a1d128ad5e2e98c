"""A service under load in the local cloud, in its own process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from market.load.account import LoadAccount, LoadedService
from market.load.queue import RequestQueue
from market.replay.ledger import Span
from market.rules import TICK_SECONDS
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.loaded_fleet import LoadedFleet
from tests.e2e.market_conditions import Conditions
from tests.e2e.world import CAPACITY, START, living, load

MOST, MINUTES = 14, 40
SERVICE = "services[0]"
CHANGES = {
    f"{SERVICE}.command": ["serve"],
    f"{SERVICE}.queue": {"kind": "rabbitmq", "existing": {"secret": "queues/inference"}},
    f"{SERVICE}.scaling": {"waitSeconds": 60, "min": 1},
    f"{CAPACITY}.target": 2,
    f"{CAPACITY}.max": MOST,
    f"{CAPACITY}.fallback.warmInstances": 0,
}


def loaded() -> dict[str, Any]:
    """Play a load that two workers cannot end, and say what came of it and what is refused."""
    seen: list[Span] = []
    with living(load("dev", CHANGES)) as world:
        plain = world.fleet()
        replay = world.replay(plain, MINUTES / 60 + 1, doubt=Conditions({}))
        rules = replace(replay.rules, warm_up_ticks=0)
        fleet = LoadedFleet.of(plain, rules, MINUTES)
        arrivals = np.random.default_rng(1).poisson(1.5, MINUTES * 60)
        fleet.service = LoadedService(arrivals.tolist(), fleet.service.speeds, RequestQueue(arrivals, 1))
        replay = world.replay(fleet, MINUTES / 60 + 1, doubt=Conditions({}))
        replay.run(MINUTES, lambda _, span: seen.append(span))
        account: LoadAccount = fleet.account(START + MINUTES * TICK_SECONDS, 0.0)
        name = f"/gpu-spot/{world.deployment.stack}/groups/{world.view.name}/scaling"
        world.clients("ssm").delete_parameter(Name=name)
        try:
            LoadedFleet.of(plain, rules, MINUTES)
        except LocalCloudError as error:
            refused = str(error)
    return {"spans": seen, "account": account, "refused": refused}
