"""Moto instances of the deployed groups and fleets: launch from templates, stop, interrupt, purge."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from moto.autoscaling.models import FakeAutoScalingGroup, autoscaling_backends
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import StateReason

from lambdas.core.model import PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.ec2.spot_requests import ENDED_BY_USER, NO_CAPACITY, GroupSpotRequest, request_of
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from pulumi_on_moto.fixes.groups import members as moto_groups
from pulumi_on_moto.fixes.speedups.cached_responses import changed
from pulumi_on_moto.program.lookups import Lookups
from rehearsal.cloud.fleet_holder import SpotFleetHolder
from rehearsal.cloud.holders import LaunchOption, ScalingGroupHolder

Holder: TypeAlias = ScalingGroupHolder | SpotFleetHolder
TERMINATED_VISIBLE_SECONDS: Final = 600.0
"""How long a terminated instance stays in ``DescribeInstances`` (AWS: an hour; shorter for moto's speed)."""

_FLEET_PREFIX: Final = "sfr-"
_RESOLVE: Final = "resolve:ssm:"
_TEMPLATE_ARGUMENTS: Final = (
    "BlockDeviceMappings",
    "IamInstanceProfile",
    "MetadataOptions",
    "TagSpecifications",
)
"""Template fields that moto drops or applies twice, and that are therefore passed explicitly."""


class Instances:
    """The moto instances of the groups and fleets of one sandbox."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._lookups = Lookups(clients)
        self.ec2: Any = ec2_backends[ACCOUNT][clients.region]
        self.autoscaling = autoscaling_backends[ACCOUNT][clients.region]
        self._templates: dict[tuple[str, str], dict[str, Any]] = {}
        self._subnets: dict[str, str] = {}
        self._reservations: dict[str, str] = {}
        self._instances: dict[str, Any] = {}
        self._holders: dict[str, Holder] = {}
        self._ended: deque[tuple[float, Any]] = deque()
        self._ended_ids: set[str] = set()

    def group(self, name: str) -> FakeAutoScalingGroup:
        """Return a deployed group by its physical name."""
        scaling_group = self.autoscaling.autoscaling_groups.get(name)
        if scaling_group is None:
            raise LocalCloudError(f"Auto Scaling group {name!r} is not deployed")
        return scaling_group

    def holder(self, name: str) -> Holder:
        """Return a deployed group by its name, or a fleet by its request id."""
        if not name.startswith(_FLEET_PREFIX):
            return ScalingGroupHolder(self.group(name))
        fleet = self.ec2.spot_fleet_requests.get(name)
        if not isinstance(fleet, FleetRequest):
            raise LocalCloudError(f"Spot Fleet {name!r} is not deployed")
        return SpotFleetHolder(fleet)

    def holder_of(self, instance: Any) -> Holder:
        """Return the group or fleet of an instance."""
        return self._holders[instance.id]

    def instance(self, instance_id: str) -> Any:
        """Return a launched instance that is still visible."""
        result = self._instances.get(instance_id)
        if result is None:
            raise LocalCloudError(f"instance {instance_id!r} is not in the local cloud")
        return result

    def instance_types(self, holder: Holder) -> tuple[str, ...]:
        """Return the holder's instance types in order of options; empty if it uses requirements."""
        named = (option.instance_type or self._own_type(option) for option in holder.options)
        return tuple(dict.fromkeys(name for name in named if name))

    def zones(self, holder: Holder) -> tuple[str, ...]:
        """Return the availability zones of a holder's subnets."""
        subnets = (subnet for option in holder.options for subnet in option.subnets)
        return tuple(dict.fromkeys(self._zone(subnet) for subnet in subnets))

    def boot_data(self, holder: Holder) -> str:
        """Return the user data of a holder's instances, empty if there is none."""
        encoded = str(self._template(holder.options[0].template).get("UserData", ""))
        return base64.b64decode(encoded).decode()

    def launch(self, holder: Holder, instance_type: str, zone: str, market: PurchaseOption) -> Any:
        """Launch an instance from the holder's template and add it; return the moto instance."""
        instance = self._run(holder, instance_type, zone, market)
        holder.join(instance)
        return instance

    def fill_warm_pool(self, group: FakeAutoScalingGroup) -> None:
        """Fill a warm pool with stopped On-Demand instances."""
        warm = moto_groups.warm_instances(group)
        zones = group.availability_zones
        holder = ScalingGroupHolder(group)
        for index in range(len(warm), moto_groups.warm_size(group)):
            first = self.instance_types(holder)[0]
            instance = self._run(holder, first, zones[index % len(zones)], PurchaseOption.ON_DEMAND)
            instance.stop()
            changed()
            warm.append(instance)

    def start_warm(self, group: FakeAutoScalingGroup, instance_id: str) -> Any:
        """Start an instance of the warm pool and add it to the group; return the moto instance."""
        instance = self._out_of_pool(group, instance_id)
        instance.start()
        instance.launch_time = utcnow()  # EC2 updates the launch time when a stopped instance starts
        changed()
        moto_groups.join(group, instance)
        return instance

    def lose_warm(self, group: FakeAutoScalingGroup, instance_id: str, now: float) -> None:
        """Terminate an instance of the warm pool that did not start."""
        instance = self._out_of_pool(group, instance_id)
        self.ec2.terminate_instances([instance_id])
        self.ended(instance, ENDED_BY_USER, now)
        changed()

    def _out_of_pool(self, group: FakeAutoScalingGroup, instance_id: str) -> Any:
        warm = moto_groups.warm_instances(group)
        for instance in warm:
            if instance.id == instance_id:
                warm.remove(instance)
                return instance
        raise LocalCloudError(f"instance {instance_id!r} is not in the warm pool of {group.name!r}")

    def take(self, instance: Any, now: float) -> None:
        """Terminate an instance as a Spot interruption does; its group or fleet is not updated yet."""
        self.ec2.terminate_instances([instance.id])
        instance.state_reason = StateReason(
            "Server.SpotInstanceTermination: Instance terminated by service", "Server.SpotInstanceTermination"
        )
        self.ended(instance, NO_CAPACITY, now)

    def ended(self, instance: Any, status: str, now: float) -> None:
        """Record a termination: close the Spot request with ``status`` and schedule the purge."""
        request = request_of(self.ec2, instance)
        if request is not None:
            request.mark(status)
        self._ended.append((now, instance))
        self._ended_ids.add(instance.id)

    def has_ended(self, instance_id: str) -> bool:
        """Return whether an instance has terminated or is already purged."""
        return instance_id in self._ended_ids or instance_id not in self._instances

    def purge(self, now: float) -> list[str]:
        """Remove instances that terminated long enough ago; return their ids."""
        purged: list[str] = []
        while self._ended and self._ended[0][0] <= now - TERMINATED_VISIBLE_SECONDS:
            _, instance = self._ended.popleft()
            request = request_of(self.ec2, instance)
            if request is not None:
                self.ec2.spot_instance_requests.pop(request.id, None)
                self.ec2.tags.pop(request.id, None)
            self.ec2.reservations.pop(self._reservations.pop(instance.id, ""), None)
            self.ec2.tags.pop(instance.id, None)
            self._instances.pop(instance.id, None)
            self._holders.pop(instance.id, None)
            self._ended_ids.discard(instance.id)
            purged.append(instance.id)
        if purged:
            changed()
        return purged

    def _run(self, holder: Holder, instance_type: str, zone: str, market: PurchaseOption) -> Any:
        option, subnet = self._option(holder, instance_type, zone)
        data = self._template(option.template)
        arguments: dict[str, Any] = {name: data[name] for name in _TEMPLATE_ARGUMENTS if name in data}
        arguments["ImageId"] = self._image(str(data.get("ImageId", "")), holder)
        if market is PurchaseOption.SPOT:
            arguments["InstanceMarketOptions"] = {"MarketType": "spot"}
        reply = self._clients("ec2").run_instances(
            LaunchTemplate={"LaunchTemplateId": option.template[0], "Version": option.template[1]},
            InstanceType=instance_type,
            SubnetId=subnet,
            MinCount=1,
            MaxCount=1,
            **arguments,
        )
        instance = self.ec2.get_instance(reply["Instances"][0]["InstanceId"])
        for _, device in instance.get_block_device_mapping:
            device.delete_on_termination = True  # EC2's default for volumes of a launch
        self.ec2.create_tags([instance.id], dict(holder.tags()))
        changed()
        if market is PurchaseOption.SPOT:
            GroupSpotRequest(self.ec2, instance)
        self._reservations[instance.id] = reply["ReservationId"]
        self._instances[instance.id] = instance
        self._holders[instance.id] = holder
        return instance

    def _option(self, holder: Holder, instance_type: str, zone: str) -> tuple[LaunchOption, str]:
        """Return the launch option of a type in a zone, and its subnet there."""
        fitting = list(self._fitting(holder, instance_type))
        if not fitting:
            allowed = ", ".join(self.instance_types(holder))
            raise LocalCloudError(f"group {holder.name!r} has no type {instance_type!r}; use {allowed}")
        for option in fitting:
            for subnet in option.subnets:
                if self._zone(subnet) == zone:
                    return option, subnet
        allowed = ", ".join(sorted(self.zones(holder)))
        raise LocalCloudError(f"group {holder.name!r} has no subnet in {zone!r}; use {allowed}")

    def _fitting(self, holder: Holder, instance_type: str) -> Iterator[LaunchOption]:
        # An override by requirements names no type; the caller passes one that meets them.
        for option in holder.options:
            if (option.instance_type or self._own_type(option)) in (instance_type, ""):
                yield option

    def _own_type(self, option: LaunchOption) -> str:
        return str(self._template(option.template).get("InstanceType", ""))

    def _zone(self, subnet_id: str) -> str:
        if subnet_id not in self._subnets:
            self._subnets[subnet_id] = str(self.ec2.get_subnet(subnet_id).availability_zone)
        return self._subnets[subnet_id]

    def _template(self, version: tuple[str, str]) -> dict[str, Any]:
        if version not in self._templates:
            reply = self._clients("ec2").describe_launch_template_versions(
                LaunchTemplateId=version[0], Versions=[version[1]]
            )
            data: dict[str, Any] = reply["LaunchTemplateVersions"][0]["LaunchTemplateData"]
            if not version[1].isdecimal():
                return data  # $Latest and $Default move
            self._templates[version] = data
        return self._templates[version]

    def _image(self, image: str, holder: Holder) -> str:
        if image.startswith(_RESOLVE):
            return self._lookups.image(image.removeprefix(_RESOLVE))
        if not image:
            raise LocalCloudError(f"group {holder.name!r}: its launch template has no image")
        return image
