"""Spot Fleets of type ``maintain`` as primary groups.

The target capacity includes On-Demand: both targets are set together to keep the Spot share.
Source: EC2 guide, "Modify a Spot Fleet request".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.warm_pool import on_demand_share
from contracts.sentences import alternatives
from lambdas.aws.budget import UNLIMITED, Budget, BudgetError
from lambdas.aws.capacity.capacity_service import (
    CapacityChange,
    CapacityState,
    GroupNotFoundError,
    Launches,
    Member,
    NotTerminatedError,
)
from lambdas.core.launch_failures import classify
from lambdas.core.model import Group, GroupRole, LaunchFailure, LaunchFailureKind

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import (
        HistoryRecordTypeDef,
        SpotFleetRequestConfigDataOutputTypeDef,
        SpotFleetRequestConfigTypeDef,
    )

_LIVE: Final = ("submitted", "active", "modifying")
_MODIFIABLE: Final = "active"
_MAX_TERMINATIONS: Final = 1_000
"""Instances that a call may terminate at once: an account's resource tokens for ``TerminateInstances``.

Source: EC2 developer guide, "Request throttling for the Amazon EC2 API".
"""
HISTORY_SECONDS: Final = 300.0
"""Age up to which an error in the history counts as a launch failure: the fleet retries every few minutes."""
_SUMMARY: Final = "allLaunchSpecsTemporarilyBlacklisted"
"""Sub-type of the error after "several attempts to launch instances have failed": the other errors say why.

Source: EC2 API reference, ``EventInformation``.
"""


@dataclass(frozen=True, slots=True)
class SpotFleetService:
    """See ``CapacityService``; names are fleet request ids (``sfr-…``)."""

    is_eventually_consistent: ClassVar[bool] = True
    client: EC2Client

    def describe(self, names: Sequence[str]) -> dict[str, CapacityState | GroupNotFoundError]:
        """See ``CapacityService``; makes one call for the fleets and one per page of members."""
        states: dict[str, CapacityState | GroupNotFoundError] = {
            name: GroupNotFoundError(f"Spot Fleet {name!r} does not exist") for name in names
        }
        for fleet in self._fleets(names):
            name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
            if state not in _LIVE:
                allowed = alternatives(_LIVE)
                states[name] = GroupNotFoundError(f"Spot Fleet {name!r} must be {allowed}, but is {state}")
                continue
            config = fleet["SpotFleetRequestConfig"]
            members = self._members(name, _weights(config))
            states[name] = CapacityState(
                config["TargetCapacity"],
                members,
                is_modifying=state != _MODIFIABLE,
                on_demand=config.get("OnDemandTargetCapacity", 0),
            )
        return states

    def launch_failures(self, name: str, role: GroupRole, now: float) -> Launches:
        """See ``CapacityService``; returns the newest known and the newest unknown error of the history.

        The sub-type is not specific: a lack of capacity is "There is no Spot capacity available …" under
        ``spotFleetRequestConfigurationInvalid``, after which the fleet blacklists launch specifications
        (Source: terraform-provider-aws, pull request 26493). If the history has no error, the target stays
        unfulfilled, which ``lambdas.core.capacity.history`` detects.
        """
        history = self.client.describe_spot_fleet_request_history(
            SpotFleetRequestId=name,
            EventType="error",
            StartTime=datetime.fromtimestamp(now - HISTORY_SECONDS, UTC),
        )
        records = sorted(history["HistoryRecords"], key=lambda record: record["Timestamp"], reverse=True)
        failures = [_launch_failure(role, record) for record in records]
        classified = [f for f in failures if f.kind is not LaunchFailureKind.UNKNOWN]
        unknown = [f for f in failures if f.kind is LaunchFailureKind.UNKNOWN]
        if classified:
            unknown = [f for f in unknown if not f.message.startswith(_SUMMARY)]
        return Launches((*classified[:1], *unknown[:1]))

    def apply(self, name: str, change: CapacityChange, group: Group, budget: Budget = UNLIMITED) -> None:
        """See ``CapacityService``; makes one modification, of the target and the On-Demand share together.

        The target is lowered first, or the fleet would replace the terminated instances; it would refuse a
        second modification (``FleetNotInModifiableState``). With ``noTermination`` it terminates no instance
        itself.
        """
        target = max(0, change.final_capacity)
        on_demand = on_demand_share(target, group.config.base, group.config.spot_percentage)
        if (target, on_demand) != (change.current, change.current_on_demand):
            self.client.modify_spot_fleet_request(
                SpotFleetRequestId=name,
                TargetCapacity=target,
                OnDemandTargetCapacity=on_demand,
                ExcessCapacityTerminationPolicy="noTermination",
            )
        for start in range(0, len(change.to_terminate), _MAX_TERMINATIONS):
            remaining = change.to_terminate[start:]
            try:
                budget.check("instances to terminate")
                self.client.terminate_instances(InstanceIds=list(remaining[:_MAX_TERMINATIONS]))
            except (BudgetError, BotoCoreError, ClientError) as error:
                raise NotTerminatedError(remaining, error) from error

    def _fleets(self, names: Sequence[str]) -> list[SpotFleetRequestConfigTypeDef]:
        """Return the fleets; AWS answers for none of them if one does not exist."""
        try:
            response = self.client.describe_spot_fleet_requests(SpotFleetRequestIds=list(names))
        except ClientError as error:
            if not error.response["Error"]["Code"].startswith("InvalidSpotFleetRequestId"):
                raise
            return [] if len(names) == 1 else [fleet for name in names for fleet in self._fleets([name])]
        return response["SpotFleetRequestConfigs"]

    def _members(self, name: str, weights: Mapping[str, int]) -> dict[str, Member]:
        pages = self.client.get_paginator("describe_spot_fleet_instances").paginate(SpotFleetRequestId=name)
        return {
            member["InstanceId"]: Member(
                member.get("InstanceType", ""),
                is_healthy=member.get("InstanceHealth", "healthy") == "healthy",
                slots=weights.get(member.get("InstanceType", ""), 1),
            )
            for page in pages
            for member in page["ActiveInstances"]
        }


def _weights(config: SpotFleetRequestConfigDataOutputTypeDef) -> dict[str, int]:
    """Return the weights by instance type, which are whole numbers here; AWS's default is 1."""
    return {
        override["InstanceType"]: int(override.get("WeightedCapacity", 1))
        for template in config.get("LaunchTemplateConfigs", ())
        for override in template.get("Overrides", ())
        if "InstanceType" in override
    }


def _launch_failure(role: GroupRole, record: HistoryRecordTypeDef) -> LaunchFailure:
    information = record["EventInformation"]
    subtype = information.get("EventSubType", "")
    message = f"{subtype}: {information.get('EventDescription', '')}"
    return LaunchFailure(role, classify(message), record["Timestamp"].timestamp(), message)
