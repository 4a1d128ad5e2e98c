"""A service with on-premises workers and replacement requests, simulated for some hours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from contracts import names
from contracts.group import config as group_config
from contracts.group import replacement_requests
from contracts.group.replacement_requests import ReplacementRequest
from market.replay.engine import Replay
from market.replay.fleet import Orders
from market.replay.groups import GroupShape
from market.rules import TICK_SECONDS, Rules
from market.supply import placement
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from rehearsal.fleets import CloudFleet
from tests.e2e.world import START, World, living, load, small

TARGET: Final = 4
HOSTS: Final = ("ocr-1.example.com", "ocr-2.example.com")
STUCK: Final = 16
FAULTY: Final = 32
"""Ticks at which one instance stalls and another has an Xid: a quarter of an hour apart."""
VANISH: Final = 40
"""Tick of the hosts' last heartbeat."""
END: Final = 50


@dataclass(slots=True)
class VisitedFleet(CloudFleet):
    """Simulates hosts and health checker; records working and released instances at each tick."""

    seen: dict[int, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)

    # `dataclass(slots=True)` creates a new class, so a plain `super()` would refer to the old one.

    def reconcile(self) -> Orders:
        tick = round((self._now - START) / TICK_SECONDS)
        if tick <= VANISH:
            self.cloud.heartbeat_on_premises(self.group, HOSTS)
        if tick in (STUCK, FAULTY):
            # Of several it is the oldest: no surplus would take it.
            self._request_replacement(next(iter(self._working)), "stuck" if tick == STUCK else "xid")
        working = set(self._working)
        orders = CloudFleet.reconcile(self)
        left = len(working - set(orders.released))
        self.seen[tick] = {"working": len(working), "released": list(orders.released), "left": left}
        return replace(orders, wake_at=self._now + TICK_SECONDS)  # hosts are heard at every tick

    def _request_replacement(self, instance_id: str, reason: str) -> None:
        self.requests[reason] = instance_id
        name = names.group_parameter(
            self.cloud.deployment.stack, self.group, names.PARAMETER_REPLACEMENT_REQUESTS
        )
        text = replacement_requests.dump([ReplacementRequest(instance_id, int(self._now), reason)])
        self.cloud.clients("ssm").put_parameter(Name=name, Value=text, Type="String", Overwrite=True)


def silence_the_checker(world: World) -> None:
    """Delete the health settings: the health checker then skips the group and requests nothing."""
    name = names.group_parameter(world.deployment.stack, world.view.name, names.PARAMETER_HEALTH)
    world.clients("ssm").delete_parameter(Name=name)


def count_hosts(world: World) -> None:
    """Have the group count workers on premises, one for an instance."""
    ssm = world.clients("ssm")
    name = names.group_parameter(world.deployment.stack, world.view.name, names.PARAMETER_CONFIG)
    config = group_config.parse(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    hosts, slots = dict.fromkeys(HOSTS, 1), dict.fromkeys(config.slots, 1)
    config_text = group_config.dumps(replace(config, on_premises=1, on_premises_hosts=hosts, slots=slots))
    ssm.put_parameter(Name=name, Value=config_text, Overwrite=True)


def played() -> dict[str, Any]:
    """Play the dev stack in a market that gives whatever is asked; return what was seen, as JSON values."""
    with living(load("dev", small(TARGET))) as world:
        silence_the_checker(world)
        count_hosts(world)
        view, rules = world.view, Rules()
        undisturbed = world.fleet()
        fleet = VisitedFleet(world.cloud, undisturbed.group, undisturbed.store)
        market = SpotMarket(
            [PoolTrace(zone, TICK_SECONDS, (2 * TARGET,) * END) for zone in sorted(view.zones)], rules
        )
        pools = placement.assign(market.names, sorted(view.zones), view.sizes)
        shape = GroupShape(pools, 0, 100, weights=view.weights)
        Replay(market, rules, fleet, shape, TARGET, start=START).run()
    return {
        "seen": fleet.seen,
        "requests": fleet.requests,
        "boot": rules.spot_cold_start / TICK_SECONDS,
        "reasons": [line.reason for line in fleet.decisions if line.actions],
    }
