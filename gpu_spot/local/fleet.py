"""Instances of the deployed Auto Scaling groups: launched from their templates, stopped, taken, purged."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from moto.autoscaling.models import FakeAutoScalingGroup, autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import StateReason

from gpu_spot.local import moto_groups
from gpu_spot.local.answers import changed
from gpu_spot.local.errors import LocalCloudError
from gpu_spot.local.lookups import Lookups
from gpu_spot.local.moto_spot import GroupSpotRequest, request_of
from gpu_spot.local.sandbox import ACCOUNT, Clients

Market = Literal["spot", "on-demand"]

TERMINATED_VISIBLE_SECONDS: Final = 600.0
"""How long a terminated instance stays in ``DescribeInstances`` (AWS: an hour; this keeps moto fast)."""

_RESOLVE: Final = "resolve:ssm:"
_TEMPLATE_ARGUMENTS: Final = (
    "BlockDeviceMappings",
    "IamInstanceProfile",
    "MetadataOptions",
    "TagSpecifications",
)
"""What moto loses or does twice in a launch from a template, and is therefore passed explicitly."""


@dataclass(frozen=True, slots=True)
class WarmInstance:
    """A stopped instance of a warm pool."""

    id: str
    instance_type: str
    zone: str


class Fleet:
    """The instances behind the groups of one sandbox."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lookups = Lookups(clients)
        self.ec2: Any = ec2_backends[ACCOUNT][clients.region]
        self.autoscaling = autoscaling_backends[ACCOUNT][clients.region]
        self._templates: dict[tuple[str, str], dict[str, Any]] = {}
        self._subnets: dict[str, str] = {}
        self._reservations: dict[str, str] = {}
        self._instances: dict[str, Any] = {}
        self._ended: deque[tuple[float, Any]] = deque()

    def group(self, name: str) -> FakeAutoScalingGroup:
        """Return a deployed group by its physical name."""
        found = self.autoscaling.autoscaling_groups.get(name)
        if found is None:
            raise LocalCloudError(f"Auto Scaling group {name!r} is not deployed")
        return found

    def instance(self, instance_id: str) -> Any:
        """Return an instance that this fleet launched and that is still visible."""
        found = self._instances.get(instance_id)
        if found is None:
            raise LocalCloudError(f"instance {instance_id!r} is not one of the local cloud's")
        return found

    def instance_types(self, group: FakeAutoScalingGroup) -> tuple[str, ...]:
        """Return the types that a group may launch, in the order of its overrides."""
        overrides = _overrides(group)
        if overrides:
            return tuple(override["InstanceType"] for override in overrides if "InstanceType" in override)
        return (str(self._template(group, "")["InstanceType"]),)

    def launch(self, group: FakeAutoScalingGroup, instance_type: str, zone: str, market: Market) -> Any:
        """Run one instance from the group's template and put it into service; return moto's instance."""
        instance = self._run(group, instance_type, zone, market)
        moto_groups.join(group, instance)
        return instance

    def fill_warm_pool(self, group: FakeAutoScalingGroup) -> int:
        """Bring a warm pool to its size with stopped on-demand instances; return how many were added.

        AWS: the pool holds ``MaxGroupPreparedCapacity`` (default: the group's maximum) less the desired
        capacity, and ``MinSize`` at least.
        """
        pool = group.get_warm_pool()
        if pool is None:
            return 0
        prepared = pool.max_group_prepared_capacity
        if prepared is None:
            prepared = group.max_size
        size = max(int(pool.min_size), int(prepared or 0) - int(group.desired_capacity or 0))
        warm = moto_groups.warm_instances(group)
        zones = group.availability_zones
        missing = range(len(warm), size)
        for index in missing:
            instance = self._run(group, self.instance_types(group)[0], zones[index % len(zones)], "on-demand")
            instance.stop()
            changed()
            warm.append(instance)
        return len(missing)

    def warm(self, group: FakeAutoScalingGroup) -> tuple[WarmInstance, ...]:
        """Return the instances of a group's warm pool."""
        return tuple(
            WarmInstance(instance.id, instance.instance_type, instance.placement.zone)
            for instance in moto_groups.warm_instances(group)
        )

    def start_warm(self, group: FakeAutoScalingGroup, instance_id: str) -> Any:
        """Start an instance of the warm pool and put it into service; return moto's instance."""
        warm = moto_groups.warm_instances(group)
        for instance in warm:
            if instance.id == instance_id:
                warm.remove(instance)
                instance.start()
                changed()
                moto_groups.join(group, instance)
                return instance
        raise LocalCloudError(f"instance {instance_id!r} is not in the warm pool of {group.name!r}")

    def take(self, instance: Any, status: str, now: float) -> None:
        """End an instance the way AWS does when it takes it back: it leaves its group by itself."""
        self.ec2.terminate_instances([instance.id])
        instance.state_reason = StateReason(
            "Server.SpotInstanceTermination: Instance terminated by service", "Server.SpotInstanceTermination"
        )
        group: FakeAutoScalingGroup = instance.autoscaling_group
        moto_groups.leave(group, instance, "an EC2 health check indicating it has been terminated or stopped")
        self.ended(instance, status, now)

    def ended(self, instance: Any, status: str, now: float) -> None:
        """Note the end of an instance: its spot request closes with ``status``, and it will be purged."""
        request = request_of(self.ec2, instance)
        if request is not None:
            request.mark(status)
        self._ended.append((now, instance))

    def purge(self, now: float) -> list[str]:
        """Forget instances that ended long enough ago; return their ids."""
        gone: list[str] = []
        while self._ended and self._ended[0][0] <= now - TERMINATED_VISIBLE_SECONDS:
            _, instance = self._ended.popleft()
            request = request_of(self.ec2, instance)
            if request is not None:
                self.ec2.spot_instance_requests.pop(request.id, None)
                self.ec2.tags.pop(request.id, None)
            self.ec2.reservations.pop(self._reservations.pop(instance.id, ""), None)
            self.ec2.tags.pop(instance.id, None)
            self._instances.pop(instance.id, None)
            gone.append(instance.id)
        if gone:
            changed()
        return gone

    def _run(self, group: FakeAutoScalingGroup, instance_type: str, zone: str, market: Market) -> Any:
        if instance_type not in self.instance_types(group):
            allowed = ", ".join(self.instance_types(group))
            raise LocalCloudError(f"group {group.name!r}: type {instance_type!r}, its types are {allowed}")
        subnet = self._subnet(group, zone)
        identity, version = _template_of(group, instance_type)
        data = self._template(group, instance_type)
        arguments: dict[str, Any] = {name: data[name] for name in _TEMPLATE_ARGUMENTS if name in data}
        arguments["ImageId"] = self._image(str(data.get("ImageId", "")), group)
        if market == "spot":
            arguments["InstanceMarketOptions"] = {"MarketType": "spot"}
        reply = self._clients("ec2").run_instances(
            LaunchTemplate={"LaunchTemplateId": identity, "Version": version},
            InstanceType=instance_type,
            SubnetId=subnet,
            MinCount=1,
            MaxCount=1,
            **arguments,
        )
        instance = self.ec2.get_instance(reply["Instances"][0]["InstanceId"])
        for _, device in instance.get_block_device_mapping:
            device.delete_on_termination = True  # EC2's default for volumes of a launch
        changed()
        if market == "spot":
            GroupSpotRequest(self.ec2, instance)
        self._reservations[instance.id] = reply["ReservationId"]
        self._instances[instance.id] = instance
        return instance

    def _subnet(self, group: FakeAutoScalingGroup, zone: str) -> str:
        for subnet_id in (group.vpc_zone_identifier or "").split(","):
            if subnet_id not in self._subnets:
                self._subnets[subnet_id] = self.ec2.get_subnet(subnet_id).availability_zone
            if self._subnets[subnet_id] == zone:
                return subnet_id
        allowed = ", ".join(sorted(group.availability_zones))
        raise LocalCloudError(f"group {group.name!r} has no subnet in {zone!r}; its zones: {allowed}")

    def _template(self, group: FakeAutoScalingGroup, instance_type: str) -> dict[str, Any]:
        key = _template_of(group, instance_type)
        if key not in self._templates:
            reply = self._clients("ec2").describe_launch_template_versions(
                LaunchTemplateId=key[0], Versions=[key[1]]
            )
            self._templates[key] = reply["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return self._templates[key]

    def _image(self, image: str, group: FakeAutoScalingGroup) -> str:
        if image.startswith(_RESOLVE):
            return self._lookups.image(image.removeprefix(_RESOLVE))
        if not image:
            raise LocalCloudError(f"group {group.name!r}: its launch template names no image")
        return image


def _overrides(group: FakeAutoScalingGroup) -> list[Mapping[str, Any]]:
    policy: Mapping[str, Any] = group.mixed_instances_policy or {}
    return list(policy.get("LaunchTemplate", {}).get("Overrides") or [])


def _template_of(group: FakeAutoScalingGroup, instance_type: str) -> tuple[str, str]:
    """Return id and version of the launch template for a type: an override may bring its own."""
    policy: Mapping[str, Any] = group.mixed_instances_policy or {}
    spec = policy.get("LaunchTemplate", {}).get("LaunchTemplateSpecification") or group.launch_template or {}
    for override in _overrides(group):
        if override.get("InstanceType") == instance_type and override.get("LaunchTemplateSpecification"):
            spec = override["LaunchTemplateSpecification"]
    return str(spec["LaunchTemplateId"]), str(spec.get("Version") or "$Default")
