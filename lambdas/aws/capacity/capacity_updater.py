"""Applies decisions. Invariant: no other module changes capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lambdas.aws.budget import UNLIMITED, Budget
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import (
    CapacityChange,
    CapacityService,
    NotTerminatedError,
    ZoneUnavailableError,
)
from lambdas.aws.capacity.spot_fleet import SpotFleetService
from lambdas.aws.settings import AUTO_SCALING, SPOT_FLEET, GroupSettings
from lambdas.core.model import Action, GroupRole, Observation, SetDesired, TerminateInstances


def capacity_services(autoscaling: Any, ec2: Any) -> dict[str, CapacityService]:
    """Return the services; the arguments are boto3 clients."""
    return {AUTO_SCALING: AutoScalingService(autoscaling), SPOT_FLEET: SpotFleetService(ec2)}


@dataclass(frozen=True, slots=True)
class FailedCapacityChange:
    """A capacity change that failed wholly or in part, with the instances that were not terminated."""

    group_role: GroupRole
    error: Exception
    not_terminated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapacityUpdater:
    """Changes groups and fleets; ``capacity`` is the service by kind of resource."""

    capacity: Mapping[str, CapacityService]

    def apply_actions(
        self,
        actions: Sequence[Action],
        settings: GroupSettings,
        observation: Observation,
        budget: Budget = UNLIMITED,
    ) -> tuple[FailedCapacityChange, ...]:
        """Apply the actions of a decision; idempotent. Alarms change nothing in AWS.

        What the time of the pass does not suffice for is a failed change, which the next pass repeats.

        If one group cannot be changed, the other still is: a Spot failure must not block On-Demand. Decreases
        are applied first; if one fails, the other group is increased only as far as the maximum allows.
        """
        failures: list[FailedCapacityChange] = []
        has_failed = False
        changes = _changes(actions, observation).items()
        # Before terminations the capacity may be raised for a moment, too: sort by both.
        for role, change in sorted(
            changes, key=lambda item: (item[1].is_increase, item[1].capacity > item[1].current)
        ):
            resource = settings.resources[role]
            limited = _limit(change, role, settings.group.maximum, observation) if has_failed else change
            try:
                self.capacity[resource.kind].apply(resource.name, limited, settings.group, budget)
            except NotTerminatedError as error:
                failures.append(FailedCapacityChange(role, error, error.instance_ids))
            except ZoneUnavailableError as error:
                failures.append(FailedCapacityChange(role, error, ()))
            except Exception as error:  # reported after all changes were tried
                has_failed = True
                failures.append(FailedCapacityChange(role, error, change.to_terminate))
        return tuple(failures)


def _changes(actions: Iterable[Action], observation: Observation) -> dict[GroupRole, CapacityChange]:
    """Return one change per group role: a fleet accepts one modification at a time."""
    changes: dict[GroupRole, CapacityChange] = {}
    sizes = {instance.id: instance.slots for instance in observation.instances}
    for action in actions:
        match action:
            case SetDesired(role, capacity, _, zone, only_there):
                unchanged = _unchanged(role, observation)
                changes[role] = replace(unchanged, capacity=capacity, zone=zone, only_there=only_there)
            case TerminateInstances(role, instance_ids, _, freed_slots, skip_warm_pool):
                changes[role] = replace(
                    changes.get(role, _unchanged(role, observation)),
                    to_terminate=instance_ids,
                    sizes={i: sizes.get(i, 1) for i in instance_ids},
                    freed_slots=freed_slots,
                    skip_warm_pool=skip_warm_pool,
                )
            case _:
                pass
    return changes


def _unchanged(role: GroupRole, observation: Observation) -> CapacityChange:
    desired = observation.desired_capacity(role)
    return CapacityChange(desired, desired, current_on_demand=observation.on_demand_targets.get(role))


def _limit(change: CapacityChange, role: GroupRole, maximum: int, observation: Observation) -> CapacityChange:
    """Return the change limited to the maximum, given that the other group stays as it is."""
    other_desired = sum(observation.desired_capacity(r) for r in GroupRole if r is not role)
    # Raising it to the slots that are counted already, before terminations, launches nothing.
    limit = max(change.current, observation.counted_slots(role), maximum - other_desired)
    return replace(change, capacity=min(change.capacity, limit))
