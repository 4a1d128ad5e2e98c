"""Observe a capacity group: a bounded number of AWS calls whatever its size, paged where AWS pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.registry.item import SKEW_SECONDS
from lambdas.aws.budget import Budget
from lambdas.aws.capacity.capacity_service import CapacityService, Member, SideView
from lambdas.aws.registry import (
    Registered,
    RegistryReader,
    deadline,
    progress,
    ready_since,
    serving,
    standing_by,
)
from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity import replacements
from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Group, Instance, Market, Observation, Pool, Refusal, Side

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

MOST_TRIES: Final = 3
_LIVE: Final = ("pending", "running")
_DOOMED: Final = ("marked-for-termination", "marked-for-stop")


@dataclass(frozen=True, slots=True)
class Observer:
    """Sees the groups of one stack through injected clients; ``capacity`` by kind of side."""

    stack: str
    capacity: Mapping[str, CapacityService]
    ec2: EC2Client
    registry: RegistryReader

    def observe(self, settings: GroupSettings, now: float, budget: Budget) -> Observation:
        """Return what AWS and the worker registry say of the group now.

        Calls: one for the groups, one for each 1,000 instances, one for each registry page, one for the spot
        requests with a notice, one for each side's refusals; a fleet's members take one for each 1,000 more,
        workers on premises one for each page of theirs. What could not be read of the spot requests, refusals
        and workers on premises is told in ``troubles``, and observation goes on without.
        Raises ``GoneError``, ``BudgetError``.
        """
        sides = self._sides(settings)
        details = self._details(settings.group.name, budget)
        registry = self.registry.read(settings.group.name, budget)
        failed: list[str] = []
        announced = self._announced(failed) if any(view.members for view in sides.values()) else {}
        seen = [
            _instance(settings, side, instance_id, member, details.get(instance_id), registry, now)
            for side, view in sides.items()
            for instance_id, member in view.members.items()
        ]
        instances = tuple(_announce(instance, announced) for instance in seen if instance is not None)
        refusals, unread = self._refusals(settings, now, failed)
        elsewhere = self._elsewhere(settings, now, budget, failed)
        wishes, ignored = replacements.sift(settings.wishes, settings.group, instances, now)
        skipped = [*settings.troubles, *ignored]
        if registry.malformed:
            skipped.append(f"{registry.malformed} malformed rows in the worker registry")
        return Observation(
            group=settings.group,
            primary_desired=sides[Side.PRIMARY].desired,
            fallback_desired=sides[Side.FALLBACK].desired if Side.FALLBACK in sides else 0,
            instances=instances,
            refusals=refusals,
            frozen=frozenset(side for side, view in sides.items() if view.frozen),
            late=frozenset(
                s for s, handle in settings.sides.items() if self.capacity[handle.kind].shows_late
            ),
            listed={
                s: sum(m.slots for m in view.members.values() if not m.given_up) for s, view in sides.items()
            },
            unread=unread,
            suspended={s: view.suspended for s, view in sides.items() if view.suspended},
            wishes=wishes,
            rolling=settings.rolling,
            elsewhere=elsewhere,
            troubles=(*skipped, *failed),
            is_partial=bool(failed),
        )

    def _sides(self, settings: GroupSettings) -> dict[Side, SideView]:
        views: dict[str, SideView] = {}
        for kind in sorted({side.kind for side in settings.sides.values()}):
            views |= self.capacity[kind].look([s.name for s in settings.sides.values() if s.kind == kind])
        return {side: views[handle.name] for side, handle in settings.sides.items()}

    def _details(self, group: str, budget: Budget) -> dict[str, InstanceTypeDef]:
        """Return the instances by id, also those that have ended: they are not the ones unknown yet.

        Asked for by tag, since one unknown id fails a list of ids.
        """
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": f"tag:{names.TAG_GROUP}", "Values": [group]},
            ],
            PaginationConfig={"PageSize": 1000},
        )
        return {
            instance["InstanceId"]: instance
            for page in budget.pages("instances", pages)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

    def _announced(self, failed: list[str]) -> Mapping[str, float]:
        """Return the deadlines of marked spot instances, so that no lost event hides a notice.

        Tried again at once where it fails: an event may be lost, and the next minute is half a notice away.
        """
        told = ""
        for _ in range(MOST_TRIES):
            try:
                return self._marked()
            except (BotoCoreError, ClientError) as error:
                told = f"spot requests could not be read: {error}"
        failed.append(told)
        return {}

    def _marked(self) -> Mapping[str, float]:
        pages = self.ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "status-code", "Values": list(_DOOMED)}]
        )
        return {
            request["InstanceId"]: request["Status"]["UpdateTime"].timestamp() + NOTICE_SECONDS
            for page in pages
            for request in page["SpotInstanceRequests"]
            if "InstanceId" in request
        }

    def _elsewhere(
        self, settings: GroupSettings, now: float, budget: Budget, failed: list[str]
    ) -> int | None:
        """Return for how many slots workers on premises serve, ``None`` where that cannot be read."""
        if not settings.config.on_premises:
            return 0
        try:
            registered = self.registry.elsewhere(settings.group.name, budget)
        except (BotoCoreError, ClientError) as error:
            failed.append(f"workers on premises could not be read: {error}")
            return None
        return serving(registered, now) // settings.config.on_premises

    def _refusals(
        self, settings: GroupSettings, now: float, failed: list[str]
    ) -> tuple[tuple[Refusal, ...], frozenset[Side]]:
        """Return the known refusals, and the sides whose could not be read."""
        found: list[Refusal] = []
        unread: set[Side] = set()
        for side, handle in settings.sides.items():
            try:
                refusal = self.capacity[handle.kind].refusal(handle.name, side, now)
            except (BotoCoreError, ClientError) as error:
                failed.append(f"launches of {handle.name!r} could not be read: {error}")
                unread.add(side)
            else:
                found += [refusal] if refusal is not None else []
        return tuple(found), frozenset(unread)


def _instance(
    settings: GroupSettings,
    side: Side,
    instance_id: str,
    member: Member,
    detail: InstanceTypeDef | None,
    registry: Registered,
    now: float,
) -> Instance | None:
    """Return one member as an instance, ``None`` for one that has ended and is still listed.

    A member that EC2 does not describe yet is there all the same: descriptions lag (EC2 API reference,
    "Eventual consistency"), and who is left out of a count may be ended by the group for it.
    """
    if detail is not None and detail["State"]["Name"] not in _LIVE:
        return None
    heard = registry.workers.get(instance_id, [])
    instance_type = member.instance_type if detail is None else detail["InstanceType"]
    expected = settings.config.slots.get(instance_type, 1)
    if detail is None:
        zone, market, launched_at = member.zone, _likely(side, settings.group), now
    else:
        zone, launched_at = detail["Placement"]["AvailabilityZone"], detail["LaunchTime"].timestamp()
        market = Market.SPOT if detail.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND
        # EC2 dates the launch anew when a warm pool's instance starts: rows may be of its service before.
        heard = [worker for worker in heard if worker.heartbeat > launched_at - SKEW_SECONDS]
    ends = now + NOTICE_SECONDS if member.given_up else None
    known = (ends, deadline(heard, now))
    ready = ready_since(heard, expected, now) if member.healthy else None
    return Instance(
        id=instance_id,
        pool=_pool(instance_type, zone),
        market=market,
        side=side,
        launched_at=launched_at,
        ready_since=ready,
        deadline=min((d for d in known if d is not None), default=None),
        standing_by=member.healthy and standing_by(heard, now),
        described=detail is not None,
        given_up=member.given_up,
        slots=member.slots,
        unclear=ready is None and instance_id in registry.unclear,
        progress=progress(heard, now),
    )


def _announce(instance: Instance, announced: Mapping[str, float]) -> Instance:
    at = announced.get(instance.id)
    if at is None or (instance.deadline is not None and instance.deadline <= at):
        return instance
    return replace(instance, deadline=at)


def _likely(side: Side, group: Group) -> Market:
    """Return how a side mostly pays."""
    return Market.SPOT if side is Side.PRIMARY and group.spot_percentage else Market.ON_DEMAND


@cache
def _pool(instance_type: str, zone: str) -> Pool:
    """Return one object for each pool: thousands of instances share it, and compare by identity."""
    return Pool(instance_type, zone)
