"""A deployed stack and its market for tests, in a process of its own: Pulumi's and moto's state is global.

The conditions are those under which the in-memory fleet and the deployed fleet are compared.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contracts import names
from gpu_spot.declared import stackfile
from lambdas.aws import settings
from lambdas.aws.memory import MemoryStore
from lambdas.aws.settings import GroupSettings
from market.replay.engine import Replay
from market.replay.fleet import Fleet
from market.replay.groups import GroupShape
from market.rules import HOSTILE, Rules
from market.supply import drawn_market, placement, trace
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.emulator import AwsClients, sandbox
from pulumi_on_moto.program.deployment import Deployment, deploy
from pulumi_on_moto.running.clock import SimulatedTime, simulated
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.fleets import CloudFleet


@dataclass(frozen=True)
class Conditions:
    """Conditions of a comparison.

    ``rules`` are those of the market, ``capacity`` settings of the group; ``happens`` names events that must
    occur in a run, otherwise the test proves nothing. A sample of a drawn trace holds for ``gap`` ticks;
    ``prices`` (US dollars an hour) alternate every two hours.
    """

    rules: Mapping[str, Any]
    happens: tuple[str, ...] = ()
    capacity: Mapping[str, Any] = field(default_factory=dict)
    gap: int = 1
    prices: tuple[float, ...] = ()

    def apply(self, trace: PoolTrace) -> PoolTrace:
        """Return a trace under these conditions."""
        samples, gap = trace.samples[:: self.gap], trace.gap_seconds * self.gap
        periods = [int(index * gap // _PRICE_SECONDS) for index in range(len(samples))]
        prices = tuple(self.prices[period % len(self.prices)] for period in periods) if self.prices else None
        return replace(trace, samples=samples, gap_seconds=gap, prices=prices)


_PRICE_SECONDS: Final = 2 * 3600.0
HOSTILE_AWS: Final = Conditions({**HOSTILE, "warm_refusal": 0.3})  # a day has few warm starts
WORLDS: Final[Mapping[str, Conditions]] = {
    "notices late, and of half of the losses": Conditions(
        {"notice": 0.5, "shortest_notice_seconds": 0.0}, ("notice", "unannounced"), {"max": 16}
    ),
    "on-demand refused by chance, and while there is no spot": Conditions(
        {"on_demand_refusal": 0.3, "on_demand_episodes": 1.0, "warm_refusal": 0.3},
        ("refusal of fallback", "warm-refusal", "interruption"),
    ),
    "a look each two minutes, of which some fail": Conditions(
        {"look_seconds": 120.0, "api_failure": 0.05}, ("notice", "interruption", "release")
    ),
    "boots that vary, drops one by one": Conditions(
        {"boot_spread": 0.3, "drop_spread": 1.0}, ("interruption", "boots that differ"), gap=10
    ),
    "two types that fail together, spot dear for hours": Conditions(
        {"types": 2, "on_demand_price": 1.0},
        ("interruption", "release"),
        {"instanceTypes": ["g5.xlarge", "g6.xlarge"]},
        prices=(0.3, 1.0, 0.7),
    ),
    "what AWS does besides": Conditions(
        {**HOSTILE, "warm_refusal": 0.3, "false_alarms": 10.0},
        ("recommendation", "warm-refusal", "refusal"),
        {"fallback.warmInstances": 2},
    ),
}


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
        shape = GroupShape(pools, group.config.base, group.config.spot_percentage, weights=view.weights)
        return Replay(market, rules, fleet, shape, group.target, start=START)


def load(stack: str, overrides: Mapping[str, Any] | None = None) -> stackfile.StackConfig:
    return stackfile.load(REPOSITORY, stack, overrides)


def small(target: int = 4, **more: Any) -> dict[str, Any]:
    """Overrides for a group of ``target`` instances, all warm behind it; ``more`` goes below ``capacity``."""
    own = {"target": target, "max": 2 * target, "fallback.warmInstances": target, **more}
    return {f"{CAPACITY}.{key}": value for key, value in own.items()}


@contextlib.contextmanager
def living(config: stackfile.StackConfig, seed: int = 1) -> Iterator[World]:
    with simulated(START) as clock, sandbox(config.region, seed) as clients:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
            deployment = deploy(clients, config)
        cloud = LocalCloud(clients, deployment, clock)
        cloud.fill_warm_pools()
        yield World(config, clients, deployment, clock, cloud, seed)
