"""What assumptions are tried with: tagged resources of small types, bounded waits, expected refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import ClientOf

TAG: Final = "gpu-spot:check"
"""On everything that a trial makes; its value is the run."""
PREFIX: Final = "gpu-spot-check-"
INSTANCE_TYPE: Final = "t3.nano"
IMAGE_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

_T = TypeVar("_T")


class Falsified(Exception):  # noqa: N818 - an outcome, not an error
    """AWS did otherwise; the text says what was seen."""


class Timekeeper(Protocol):
    """Time as the trial takes it: epoch seconds."""

    def now(self) -> float:
        """Return the time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True)
class Lab:
    """One run in one region of an account, in its default VPC.

    Attributes:
        run: what tells this run's resources from another's; letters and digits.
    """

    clients: ClientOf
    clock: Timekeeper
    run: str

    def name(self, what: str) -> str:
        """Return the name of a resource of this run."""
        return f"{PREFIX}{self.run}-{what}"

    @property
    def tags(self) -> list[dict[str, str]]:
        """The run's tag, as most services take it."""
        return [{"Key": TAG, "Value": self.run}]

    def tagged(self, *kinds: str) -> list[dict[str, Any]]:
        """Return tag specifications of EC2 for these kinds of resource."""
        return [{"ResourceType": kind, "Tags": self.tags} for kind in kinds]

    @cached_property
    def image(self) -> str:
        """AWS's newest Amazon Linux."""
        found = self.clients("ssm").get_parameter(Name=IMAGE_PARAMETER)
        return str(found["Parameter"]["Value"])

    @cached_property
    def subnets(self) -> Mapping[str, str]:
        """The default subnets by zone, of the zones that have the small type."""
        ec2 = self.clients("ec2")
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [INSTANCE_TYPE]}]
        )["InstanceTypeOfferings"]
        zones = {one["Location"] for one in offered}
        found = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        return {one["AvailabilityZone"]: one["SubnetId"] for one in found if one["AvailabilityZone"] in zones}

    def until(self, probe: Callable[[], _T | None], what: str, seconds: float = 300) -> _T:
        """Return the first answer of ``probe`` that is not None or False; ``Falsified`` after ``seconds``."""
        end = self.clock.now() + seconds
        while True:
            if answer := probe():
                return answer
            if self.clock.now() >= end:
                raise Falsified(f"{what}: not within {seconds:.0f} s")
            self.clock.sleep(5)

    def refused(self, call: Callable[[], Any], *words: str) -> str:
        """Return the refusal of ``call``, which names one of ``words``; ``Falsified`` where it does not."""
        try:
            call()
        except ClientError as error:
            told = _told(error)
            if any(word.casefold() in told.casefold() for word in words):
                return told
            raise Falsified(f"refused with other words: {told}") from None
        raise Falsified("not refused")

    def accepted(self, call: Callable[[], _T]) -> _T:
        """Return the answer of ``call``; a refusal is ``Falsified``."""
        try:
            return call()
        except ClientError as error:
            raise Falsified(f"refused: {_told(error)}") from None

    def template(self, what: str, image: str | None = None) -> str:
        """Make a launch template of the small type and return its id."""
        made = self.clients("ec2").create_launch_template(
            LaunchTemplateName=self.name(what),
            LaunchTemplateData={
                "ImageId": image or self.image,
                "InstanceType": INSTANCE_TYPE,
                "TagSpecifications": self.tagged("instance", "volume"),
            },
            TagSpecifications=self.tagged("launch-template"),
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def group(self, what: str, template: str | None = None, **given: Any) -> str:
        """Make an Auto Scaling group of at most two instances over all default subnets; return its name."""
        name = self.name(what)
        arguments = {
            "MinSize": 0,
            "MaxSize": 2,
            "LaunchTemplate": {"LaunchTemplateId": template or self.template(what), "Version": "$Latest"},
            "VPCZoneIdentifier": ",".join(self.subnets.values()),
            "Tags": [{**tag, "PropagateAtLaunch": True} for tag in self.tags],
        } | given
        self.clients("autoscaling").create_auto_scaling_group(AutoScalingGroupName=name, **arguments)
        return name

    def serving_protected(self, group: str) -> str:
        """Have a group serve with one member; raise ``Falsified`` unless that is protected from scale-in."""
        self.serving(group, 1)
        [member] = self.described(group)["Instances"]
        if not member["ProtectedFromScaleIn"]:
            raise Falsified("it is not protected")
        return "protected"

    def desires(self, group: str, count: int) -> None:
        """Raise ``Falsified`` unless a group's desired capacity is ``count``."""
        desired = self.described(group)["DesiredCapacity"]
        if desired != count:
            raise Falsified(f"the desired capacity is {desired}")

    def is_tagged(self, resource: Mapping[str, Any], **more: str) -> None:
        """Raise ``Falsified`` unless a resource, as it is described, has the run's tag and these."""
        tags = {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}
        if not ({TAG: self.run} | more).items() <= tags.items():
            raise Falsified(f"its tags are {tags}")

    def described(self, group: str) -> Mapping[str, Any]:
        """Return a group as it is now."""
        client = self.clients("autoscaling")
        [found] = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        described: Mapping[str, Any] = found
        return described

    def states(self, group: str) -> dict[str, str]:
        """Return the lifecycle states of a group's members, by instance."""
        return {one["InstanceId"]: one["LifecycleState"] for one in self.described(group)["Instances"]}

    def serving(self, group: str, count: int) -> list[str]:
        """Ask for ``count`` instances and return them once they are in service."""
        self.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=count)

        def in_service() -> list[str] | None:
            there = [one for one, state in self.states(group).items() if state == "InService"]
            return there if len(there) == count else None

        return self.until(in_service, f"{count} instances in service")

    def instance(self, zone: str) -> str:
        """Start an instance of the small type in a zone and return its id once it runs."""
        ec2 = self.clients("ec2")
        made = ec2.run_instances(
            ImageId=self.image,
            InstanceType=INSTANCE_TYPE,
            SubnetId=self.subnets[zone],
            MinCount=1,
            MaxCount=1,
            TagSpecifications=self.tagged("instance", "volume"),
        )
        identity = str(made["Instances"][0]["InstanceId"])

        def runs() -> bool:
            [found] = ec2.describe_instances(InstanceIds=[identity])["Reservations"][0]["Instances"]
            return bool(found["State"]["Name"] == "running")

        self.until(runs, "the instance runs")
        return identity

    def volume(self, zone: str, **given: Any) -> str:
        """Make a volume of 1 GiB in a zone and return its id once it is available."""
        ec2 = self.clients("ec2")
        arguments = {} if "SnapshotId" in given else {"Size": 1}
        made = ec2.create_volume(
            AvailabilityZone=zone,
            VolumeType="gp3",
            TagSpecifications=self.tagged("volume"),
            **arguments,
            **given,
        )
        identity = str(made["VolumeId"])
        self.until(lambda: self.volume_state(identity) == "available", "the volume is available")
        return identity

    def volume_state(self, volume: str) -> str:
        """Return the state of a volume."""
        return str(self.clients("ec2").describe_volumes(VolumeIds=[volume])["Volumes"][0]["State"])

    def queue(self, what: str, **attributes: str) -> str:
        """Make a queue with these attributes and return its URL."""
        made = self.clients("sqs").create_queue(
            QueueName=self.name(what), Attributes=attributes, tags={TAG: self.run}
        )
        return str(made["QueueUrl"])

    def queue_arn(self, url: str) -> str:
        """Return the ARN of a queue."""
        found = self.clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def received(self, url: str) -> Mapping[str, Any] | None:
        """Return a message of a queue, None if it shows none."""
        messages = self.clients("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=1).get("Messages")
        return messages[0] if messages else None


def _told(error: ClientError) -> str:
    """Return code and text of a refusal; one for the caller's permissions is about another matter."""
    code = error.response["Error"]["Code"]
    if code.startswith(("AccessDenied", "Unauthorized")):
        raise error
    return " ".join(f"{code}: {error.response['Error'].get('Message', '')}".split())
