"""A rehearsal of ``gpu-spot aws-check`` on moto: instances are launched for groups and fleets as time passes.

It verifies the program's calls, verdicts and clean-up, not the behaviour of AWS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from moto.autoscaling.models import FakeAutoScalingGroup, autoscaling_backends
from moto.ec2.models import ec2_backends

from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, AwsTestBed
from gpu_spot.preflight.account import ClientOf
from pulumi_on_moto import sandbox
from pulumi_on_moto.fixes.ec2.spot_prices import quote
from pulumi_on_moto.fixes.fleets.changing import modifying_takes
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from pulumi_on_moto.fixes.groups import launches
from pulumi_on_moto.fixes.groups.members import join, warm_instances, warm_size
from pulumi_on_moto.fixes.groups.weights import capacity
from pulumi_on_moto.running.clock import SimulatedTime, simulated
from pulumi_on_moto.running.events import EventBus
from pulumi_on_moto.running.functions import FunctionRuntime
from pulumi_on_moto.sandbox import ACCOUNT
from rehearsal import probes
from rehearsal.assumed_roles import role_clients

_START: Final = 1_767_571_200.0
_RUN: Final = "rehearsal"
_PRICE: Final = 0.0016
"""Spot price of the small instance type in US dollars an hour; the value does not matter."""
_MODIFYING_SECONDS: Final = 3.0
"""Source: measured in kubernetes-retired/kube-aws#843."""


class PlayedClock:
    """Simulated clock that launches requested instances when time passes. See ``Clock``."""

    def __init__(self, clients: ClientOf, region: str, time: SimulatedTime) -> None:
        self._clients, self._time, self._region = clients, time, region
        self._booted: set[str] = set()
        self._groups = autoscaling_backends[ACCOUNT][region]
        self._ec2: Any = ec2_backends[ACCOUNT][region]

    def now(self) -> float:
        """Return the simulated time."""
        return self._time.now

    def sleep(self, seconds: float) -> None:
        """Advance simulated time and launch the requested instances."""
        self._time.set(self._time.now + seconds)
        for instance in list(self._ec2.all_instances()):
            if instance.id not in self._booted:
                self._booted.add(instance.id)
                probes.play(self._clients, ACCOUNT, self._region, instance)
        for group in self._groups.autoscaling_groups.values():
            self._play(group)
        for fleet in self._ec2.spot_fleet_requests.values():
            if isinstance(fleet, FleetRequest) and fleet.state == "active":
                while len(fleet.members) < fleet.target:
                    fleet.join(self._launched())

    def _play(self, group: FakeAutoScalingGroup) -> None:
        """Fill a group, first from its warm pool, then refill the pool."""
        warm = warm_instances(group)
        while capacity(group.instance_states) < int(group.desired_capacity or 0):
            if warm:
                instance = warm.pop()
                self._clients("ec2").start_instances(InstanceIds=[instance.id])
            else:
                instance = self._launched()
            join(group, instance)
        while len(warm) < warm_size(group):
            instance = self._launched()
            self._clients("ec2").stop_instances(InstanceIds=[instance.id])
            warm.append(instance)

    def sell(self, group: FakeAutoScalingGroup, zone: str, capacity: int) -> list[Any]:
        """See ``Seller``: every zone has the requested capacity."""
        sold = [self._launched(Placement={"AvailabilityZone": zone}) for _ in range(capacity)]
        for instance in sold:
            join(group, instance)
        return sold

    def _launched(self, **where: Any) -> Any:
        response = self._clients("ec2").run_instances(
            ImageId="ami-0123456789abcdef0", InstanceType=INSTANCE_TYPE, MinCount=1, MaxCount=1, **where
        )
        return self._ec2.get_instance(response["Instances"][0]["InstanceId"])


def _session(clients: ClientOf, role_arn: str) -> ClientOf:
    """Return the clients of a session with a role."""
    return role_clients(clients, role_arn.rpartition("/")[2], ACCOUNT)


@contextlib.contextmanager
def rehearsed(region: str) -> Iterator[AwsTestBed]:
    """Run the body with a test bed in an empty local cloud."""
    with simulated(_START) as time, sandbox(region) as clients:
        modifying_takes(ec2_backends[ACCOUNT][region], _MODIFYING_SECONDS)
        EventBus(region, FunctionRuntime(clients, {}))  # delivers events to matching rules from now on
        clock = PlayedClock(clients, region, time)
        launches.offer(autoscaling_backends[ACCOUNT][region], clock)
        test_bed = AwsTestBed(clients, clock, _RUN, partial(_session, clients))
        quote(ec2_backends[ACCOUNT][region], {(INSTANCE_TYPE, zone): _PRICE for zone in test_bed.subnets})
        yield test_bed
        clients.refused.clear()  # refusals are what some tests look for
