"""A maintain-type Spot Fleet as the primary side.

Its target counts on-demand, too: both targets are set together, or the spot share would shrink (EC2 guide,
"Modify a Spot Fleet request").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from botocore.exceptions import ClientError

from contracts.group.on_demand_share import on_demand_share
from lambdas.aws.capacity.capacity_service import GoneError, Member, NotReleasedError, Order, SideView
from lambdas.core.launch_failures import classify, known
from lambdas.core.model import Group, Refusal, Side

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import HistoryRecordTypeDef, SpotFleetRequestConfigDataOutputTypeDef

_LIVE: Final = ("submitted", "active", "modifying")
_MODIFIABLE: Final = "active"
HISTORY_SECONDS: Final = 300.0
"""How long an error in the fleet's history counts as a refusal: the fleet retries every few minutes."""


@dataclass(frozen=True, slots=True)
class SpotFleetService:
    """See ``CapacityService``; names are fleet request ids (``sfr-…``)."""

    shows_late: ClassVar[bool] = True
    client: EC2Client

    def look(self, names: Sequence[str]) -> dict[str, SideView]:
        """See ``CapacityService``: one call for the fleets, one for each page of a fleet's members."""
        views: dict[str, SideView] = {}
        described = self.client.describe_spot_fleet_requests(SpotFleetRequestIds=list(names))
        for fleet in described["SpotFleetRequestConfigs"]:
            name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
            if state not in _LIVE:
                raise GoneError(f"Spot Fleet {name!r} is {state}, one of {', '.join(_LIVE)} is needed")
            config = fleet["SpotFleetRequestConfig"]
            members = self._members(name, _weights(config))
            views[name] = SideView(config["TargetCapacity"], members, frozen=state != _MODIFIABLE)
        for name in names:
            if name not in views:
                raise GoneError(f"Spot Fleet {name!r} does not exist")
        return views

    def refusal(self, name: str, side: Side, now: float) -> Refusal | None:
        """See ``CapacityService``: the newest error of the fleet's history whose words are known.

        The sub-type alone says little: a shortage comes as "There is no Spot capacity available …" under
        ``spotFleetRequestConfigurationInvalid`` (terraform-provider-aws, pull request 26493), and
        specifications are blacklisted after it. Where a shortage is not even told, the target stays
        unfulfilled: ``lambdas.core.capacity.history`` sees that.
        """
        history = self.client.describe_spot_fleet_request_history(
            SpotFleetRequestId=name,
            EventType="error",
            StartTime=datetime.fromtimestamp(now - HISTORY_SECONDS, UTC),
        )
        records = sorted(history["HistoryRecords"], key=lambda record: record["Timestamp"], reverse=True)
        refusals = [_refusal(side, record) for record in records]
        return next((r for r in refusals if known(r.message) is not None), refusals[0] if refusals else None)

    def move(self, name: str, order: Order, group: Group) -> None:
        """See ``CapacityService``: at most one modification, on-demand share and target together.

        The target is lowered first, or the fleet would replace whom we terminate; a second modification would
        be refused (``FleetNotInModifiableState``). Without excess termination the fleet ends nobody itself.
        """
        target = max(0, order.after)
        if target != order.before:
            self.client.modify_spot_fleet_request(
                SpotFleetRequestId=name,
                TargetCapacity=target,
                OnDemandTargetCapacity=on_demand_share(target, group.base, group.spot_percentage),
                ExcessCapacityTerminationPolicy="noTermination",
            )
        if order.going:
            try:
                self.client.terminate_instances(InstanceIds=list(order.going))
            except ClientError as error:
                raise NotReleasedError(order.going, error) from error

    def _members(self, name: str, weights: Mapping[str, int]) -> dict[str, Member]:
        pages = self.client.get_paginator("describe_spot_fleet_instances").paginate(SpotFleetRequestId=name)
        return {
            member["InstanceId"]: Member(
                member.get("InstanceType", ""),
                healthy=member.get("InstanceHealth", "healthy") == "healthy",
                slots=weights.get(member.get("InstanceType", ""), 1),
            )
            for page in pages
            for member in page["ActiveInstances"]
        }


def _weights(config: SpotFleetRequestConfigDataOutputTypeDef) -> dict[str, int]:
    """Return for how much an instance of a type counts; AWS's default is 1, and ours are whole numbers."""
    return {
        override["InstanceType"]: int(override.get("WeightedCapacity", 1))
        for template in config.get("LaunchTemplateConfigs", ())
        for override in template.get("Overrides", ())
        if "InstanceType" in override
    }


def _refusal(side: Side, record: HistoryRecordTypeDef) -> Refusal:
    information = record["EventInformation"]
    subtype = information.get("EventSubType", "")
    message = f"{subtype}: {information.get('EventDescription', '')}"
    return Refusal(side, classify(message), record["Timestamp"].timestamp(), message)
