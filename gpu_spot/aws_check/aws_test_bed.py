"""Resources for tests of assumptions: tagged, of small types, with bounded waits and expected errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, cast

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account, ClientOf, identify

TAG: Final = "gpu-spot:check"
"""Tag of every resource of a test; its value is the run."""
PREFIX: Final = "gpu-spot-check-"
INSTANCE_TYPE: Final = "t3.nano"
IMAGE_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

_T = TypeVar("_T")


class Falsified(Exception):  # noqa: N818 - an outcome, not an error
    """AWS behaves differently; the message is the observation."""


class TestBedClock(Protocol):
    """The time source of a test, in epoch seconds."""

    def now(self) -> float:
        """Return the time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        ...


@dataclass(frozen=True)
class AwsTestBed:
    """One run in the default VPC of a region.

    Attributes:
        assume: returns the clients of a session with a role, given the role's ARN.
        run: distinguishes this run's resources from those of others; letters and digits.
    """

    clients: ClientOf
    clock: TestBedClock
    run: str
    assume: Callable[[str], ClientOf]

    def resource_name(self, suffix: str) -> str:
        """Return the name of a resource of this run."""
        return f"{PREFIX}{self.run}-{suffix}"

    @cached_property
    def account(self) -> Account:
        """The account of the caller."""
        return identify(self.clients)

    @property
    def region(self) -> str:
        """The region of the clients."""
        return str(self.clients("ec2").meta.region_name)

    @property
    def partition(self) -> str:
        """The partition of the region."""
        return self.account.caller.split(":")[1]

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account.id}:{resource}"

    @property
    def tags(self) -> list[dict[str, str]]:
        """The run's tag, in the form of most services."""
        return [{"Key": TAG, "Value": self.run}]

    def tag_specifications(self, *kinds: str) -> list[dict[str, Any]]:
        """Return EC2 tag specifications for these resource types."""
        return [{"ResourceType": kind, "Tags": self.tags} for kind in kinds]

    @cached_property
    def image(self) -> str:
        """The latest Amazon Linux image."""
        response = self.clients("ssm").get_parameter(Name=IMAGE_PARAMETER)
        return str(response["Parameter"]["Value"])

    @cached_property
    def subnets(self) -> Mapping[str, str]:
        """The default subnets by zone, of the zones that offer the small type."""
        ec2 = self.clients("ec2")
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [INSTANCE_TYPE]}]
        )["InstanceTypeOfferings"]
        zones = {offering["Location"] for offering in offered}
        default_subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])[
            "Subnets"
        ]
        return {
            subnet["AvailabilityZone"]: subnet["SubnetId"]
            for subnet in default_subnets
            if subnet["AvailabilityZone"] in zones
        }

    def wait_until(self, probe: Callable[[], _T | None], description: str, seconds: float = 300) -> _T:
        """Return the first truthy result of ``probe``. Raises ``Falsified`` after ``seconds``."""
        end = self.clock.now() + seconds
        while True:
            if result := probe():
                return result
            if self.clock.now() >= end:
                raise Falsified(f"{description}: not within {seconds:.0f} s")
            self.clock.sleep(5)

    def expect_refusal(self, call: Callable[[], Any], *words: str) -> str:
        """Return the error of ``call``, which contains one of ``words``. Otherwise raises ``Falsified``."""
        try:
            call()
        except ClientError as error:
            refusal = _refusal_text(error)
            if any(word.casefold() in refusal.casefold() for word in words):
                return refusal
            raise Falsified(f"rejected with another message: {refusal}") from None
        raise Falsified("not rejected")

    def expect_success(self, call: Callable[[], _T]) -> _T:
        """Return the result of ``call``. An error raises ``Falsified``."""
        try:
            return call()
        except ClientError as error:
            raise Falsified(f"rejected: {_refusal_text(error)}") from None

    def template(self, suffix: str, image: str | None = None, **data: Any) -> str:
        """Create a launch template with the small type and return its id; ``data`` is more of its data."""
        response = self.clients("ec2").create_launch_template(
            LaunchTemplateName=self.resource_name(suffix),
            LaunchTemplateData={
                "ImageId": image or self.image,
                "InstanceType": INSTANCE_TYPE,
                "TagSpecifications": self.tag_specifications("instance", "volume"),
                **data,
            },
            TagSpecifications=self.tag_specifications("launch-template"),
        )
        return str(response["LaunchTemplate"]["LaunchTemplateId"])

    def group(self, suffix: str, template: str | None = None, **overrides: Any) -> str:
        """Create an Auto Scaling group of at most two instances in all default subnets; return its name."""
        name = self.resource_name(suffix)
        arguments = {
            "MinSize": 0,
            "MaxSize": 2,
            "LaunchTemplate": {"LaunchTemplateId": template or self.template(suffix), "Version": "$Latest"},
            "VPCZoneIdentifier": ",".join(self.subnets.values()),
            "Tags": [{**tag, "PropagateAtLaunch": True} for tag in self.tags],
        } | overrides
        self.clients("autoscaling").create_auto_scaling_group(AutoScalingGroupName=name, **arguments)
        return name

    def expect_protected_instance(self, group: str) -> str:
        """Start one member. Raises ``Falsified`` unless it is protected from scale-in."""
        self.scale_to(group, 1)
        [member] = self.describe_group(group)["Instances"]
        if not member["ProtectedFromScaleIn"]:
            raise Falsified("it is not protected")
        return "protected"

    def expect_desired_capacity(self, group: str, count: int) -> None:
        """Raise ``Falsified`` unless a group's desired capacity is ``count``."""
        desired = self.describe_group(group)["DesiredCapacity"]
        if desired != count:
            raise Falsified(f"the desired capacity is {desired}")

    def expect_tags(self, resource: Mapping[str, Any], **more: str) -> None:
        """Raise ``Falsified`` unless a described resource has the run's tag and these tags."""
        tags = {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}
        if not ({TAG: self.run} | more).items() <= tags.items():
            raise Falsified(f"its tags are {tags}")

    def describe_group(self, group: str) -> Mapping[str, Any]:
        """Return the description of a group."""
        client = self.clients("autoscaling")
        groups = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        [description] = cast("list[Mapping[str, Any]]", groups)
        return description

    def lifecycle_states(self, group: str) -> dict[str, str]:
        """Return the lifecycle states of a group's members, by instance."""
        return {
            member["InstanceId"]: member["LifecycleState"]
            for member in self.describe_group(group)["Instances"]
        }

    def scale_to(self, group: str, count: int) -> list[str]:
        """Set the desired capacity and return the instances once they are in service."""
        self.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=count)

        def in_service() -> list[str] | None:
            in_service = [
                instance_id
                for instance_id, state in self.lifecycle_states(group).items()
                if state == "InService"
            ]
            return in_service if len(in_service) == count else None

        return self.wait_until(in_service, f"{count} instances in service")

    def instance(self, zone: str) -> str:
        """Launch an instance of the small type in a zone and return its id once it runs."""
        ec2 = self.clients("ec2")
        response = ec2.run_instances(
            ImageId=self.image,
            InstanceType=INSTANCE_TYPE,
            SubnetId=self.subnets[zone],
            MinCount=1,
            MaxCount=1,
            TagSpecifications=self.tag_specifications("instance", "volume"),
        )
        instance_id = str(response["Instances"][0]["InstanceId"])

        def runs() -> bool:
            [instance] = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"]
            return bool(instance["State"]["Name"] == "running")

        self.wait_until(runs, "the instance runs")
        return instance_id

    def volume(self, zone: str, **options: Any) -> str:
        """Create a volume of 1 GiB in a zone and return its id once it is available."""
        ec2 = self.clients("ec2")
        arguments = {} if "SnapshotId" in options else {"Size": 1}
        response = ec2.create_volume(
            AvailabilityZone=zone,
            VolumeType="gp3",
            TagSpecifications=self.tag_specifications("volume"),
            **arguments,
            **options,
        )
        volume_id = str(response["VolumeId"])
        self.wait_until(lambda: self.volume_state(volume_id) == "available", "the volume is available")
        return volume_id

    def volume_state(self, volume: str) -> str:
        """Return the state of a volume."""
        return str(self.clients("ec2").describe_volumes(VolumeIds=[volume])["Volumes"][0]["State"])

    def queue(self, suffix: str, **attributes: str) -> str:
        """Create a queue with these attributes and return its URL."""
        response = self.clients("sqs").create_queue(
            QueueName=self.resource_name(suffix), Attributes=attributes, tags={TAG: self.run}
        )
        return str(response["QueueUrl"])

    def queue_arn(self, url: str) -> str:
        """Return the ARN of a queue."""
        response = self.clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(response["Attributes"]["QueueArn"])

    def receive(self, url: str) -> Mapping[str, Any] | None:
        """Return a message of a queue, None if there is none."""
        messages = self.clients("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=1).get("Messages")
        return messages[0] if messages else None


def _refusal_text(error: ClientError) -> str:
    """Return code and message of an error; an error about the caller's permissions is raised again."""
    code = error.response["Error"]["Code"]
    if code.startswith(("AccessDenied", "Unauthorized")):
        raise error
    return " ".join(f"{code}: {error.response['Error'].get('Message', '')}".split())
