"""A deployed stack and its market for tests, in a process of its own: Pulumi's and moto's state is global."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contracts import names
from lambdas.aws import settings
from lambdas.aws.memory import MemoryStore
from lambdas.aws.settings import GroupSettings
from market.replay.engine import Replay
from market.replay.fleet import Fleet
from market.replay.groups import GroupShape
from market.rules import Rules
from market.supply import drawn_market, placement, trace
from market.supply.spot import SpotMarket
from pulumi_declared import stackfile
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.program.run import deploy
from pulumi_on_moto.running.clock import SimulatedTime, simulated
from pulumi_on_moto.sandbox import AwsClients, sandbox
from rehearsal.cloud.fault_injection import FaultInjection
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.fleets import CloudFleet
from tests.e2e.market_conditions import HOSTILE_AWS, Conditions

REPOSITORY = Path(__file__).parents[2]
START = 1_767_571_200.0
CAPACITY = "services[0].capacity"


@dataclass(frozen=True)
class World:
    """A stack in the local cloud, with its first group."""

    config: stackfile.StackConfig
    clients: AwsClients
    deployment: Deployment
    clock: SimulatedTime
    cloud: LocalCloud
    seed: int

    @property
    def view(self) -> GroupView:
        return self.cloud.groups()[0]

    @property
    def group(self) -> GroupSettings:
        return settings.read(self.clients("ssm"), names.parameter_root(self.deployment.stack))[0][
            self.view.name
        ]

    def fleet(self) -> CloudFleet:
        store = MemoryStore(self.clients("dynamodb"), self.deployment.outputs["memoryTable"])
        return CloudFleet(self.cloud, self.view.name, store)

    def replay(
        self,
        fleet: Fleet,
        hours: float,
        files: Sequence[Path] = (),
        pool_size: int = 8,
        doubt: Conditions = HOSTILE_AWS,
    ) -> Replay:
        """Return a replay of the files, or of a market drawn from the fitted model where there are none."""
        view = self.view
        rules = Rules(
            seed=self.seed,
            warm_instances=len(self.cloud.warm(view.name)),
            warm_reuse=self.cloud.takes_back(view.name),
            **doubt.rules,
        )
        kinds = view.instance_types if files or rules.types > 1 else view.sizes
        if files:
            traces = trace.load(files)
        else:
            traces = drawn_market.draw(len(view.zones) * len(kinds) // rules.types, hours, self.seed)
        if rules.types > 1:  # those of a zone share its trace
            traces = tuple(replace(t, name=zone) for t, zone in zip(traces, sorted(view.zones), strict=True))
        market = SpotMarket([doubt.apply(t) for t in traces], rules, pool_size)
        pools = placement.assign(market.names, sorted(view.zones), kinds)
        group = self.group.group
        shape = GroupShape(pools, group.base, group.spot_percentage, weights=view.weights)
        return Replay(market, rules, fleet, shape, group.target, start=START)


def load(stack: str, overrides: Mapping[str, Any] | None = None) -> stackfile.StackConfig:
    return stackfile.load(REPOSITORY, stack, overrides)


def small(target: int = 4, **more: Any) -> dict[str, Any]:
    """Overrides for a group of ``target`` instances, all warm behind it; ``more`` goes below ``capacity``."""
    own = {"target": target, "max": 2 * target, "fallback.warmInstances": target, **more}
    return {f"{CAPACITY}.{key}": value for key, value in own.items()}


@contextlib.contextmanager
def living(
    config: stackfile.StackConfig, seed: int = 1, faults: FaultInjection | None = None
) -> Iterator[World]:
    with simulated(START) as clock, sandbox(config.region, seed) as clients:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
            deployment = deploy(clients, config)
        cloud = LocalCloud(clients, deployment, clock, faults)
        cloud.fill_warm_pools()
        yield World(config, clients, deployment, clock, cloud, seed)
