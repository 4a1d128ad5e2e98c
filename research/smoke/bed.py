"""What a belief may make and ask: tagged resources of small types, recorded before they exist."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import ClientOf

TAG: Final = "gpu-spot:smoke"
"""Tag of every resource of a run; its value is the run."""
INSTANCE_TYPE: Final = "t3.nano"
IMAGE_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

_T = TypeVar("_T")


class Falsified(Exception):  # noqa: N818 - an outcome, not an error
    """AWS behaves differently; the message is the observation."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """JSON lines in a file, each written through before the next step."""

    path: Path

    def add(self, **line: str) -> None:
        """Append a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")

    def lines(self) -> Iterator[dict[str, str]]:
        """Yield the lines; none if nothing was written."""
        if self.path.exists():
            yield from map(json.loads, self.path.read_text("utf-8").splitlines())


def policy_of(*statements: Mapping[str, Any]) -> str:
    """Return a policy with these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@dataclass(frozen=True)
class Bed:
    """One run in the default VPC of a region.

    Attributes:
        run: distinguishes this run's resources from those of others; letters and digits.
        record: the record of what this run makes, by ``kind`` and ``name``.
        sleep: waits some seconds.
        now: epoch seconds.
    """

    clients: ClientOf
    run: str
    record: RunRecord
    sleep: Callable[[float], object] = time.sleep
    now: Callable[[], float] = time.time

    def name(self, kind: str, suffix: str) -> str:
        """Record and return the name of a resource that is about to be made."""
        name = f"gpu-spot-smoke-{self.run}-{suffix}"
        self.record.add(kind=kind, name=name)
        return name

    @property
    def tags(self) -> list[dict[str, str]]:
        """The run's tag, in the form of most services."""
        return [{"Key": TAG, "Value": self.run}]

    def tag_specifications(self, *kinds: str) -> list[dict[str, Any]]:
        """Return EC2 tag specifications for these resource types."""
        return [{"ResourceType": kind, "Tags": self.tags} for kind in kinds]

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of the caller's account."""
        partition, account = self.caller
        return f"arn:{partition}:{service}:{self.clients('ec2').meta.region_name}:{account}:{resource}"

    @cached_property
    def caller(self) -> tuple[str, str]:
        """Partition and account of the caller."""
        identity = self.clients("sts").get_caller_identity()
        return identity["Arn"].split(":")[1], identity["Account"]

    @cached_property
    def image(self) -> str:
        """The latest Amazon Linux image."""
        return str(self.clients("ssm").get_parameter(Name=IMAGE_PARAMETER)["Parameter"]["Value"])

    @cached_property
    def subnets(self) -> Mapping[str, str]:
        """The default subnets by zone."""
        filters = [{"Name": "default-for-az", "Values": ["true"]}]
        subnets = self.clients("ec2").describe_subnets(Filters=filters)["Subnets"]
        return {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}

    def wait_until(self, probe: Callable[[], _T | None], description: str, seconds: float = 300) -> _T:
        """Return the first truthy result of ``probe``. Raises ``Falsified`` after ``seconds``."""
        end = self.now() + seconds
        while not (result := probe()):
            if self.now() >= end:
                raise Falsified(f"{description}: not within {seconds:.0f} s")
            self.sleep(5)
        return result

    def refusal(self, call: Callable[[], Any], *words: str) -> str:
        """Return the error of ``call``, which has one of ``words``. Else raises ``Falsified``.

        An error about the caller's own permissions is raised again: it says nothing of the belief.
        """
        try:
            call()
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code.startswith(("AccessDenied", "Unauthorized")):
                raise
            text = " ".join(f"{code}: {error.response['Error'].get('Message', '')}".split())
            if not any(word.casefold() in text.casefold() for word in words):
                raise Falsified(f"refused in other words: {text}") from None
            return text
        raise Falsified("not refused")

    def role(self, suffix: str, principal: dict[str, str], **more: Any) -> str:
        """Make a role that ``principal`` may assume, under a condition in ``more``, and return its ARN."""
        trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
        named = {"RoleName": self.name("role", suffix), "Tags": self.tags}
        response = self.clients("iam").create_role(**named, AssumeRolePolicyDocument=policy_of(trust))
        return str(response["Role"]["Arn"])

    def template(self, suffix: str, image: str | None = None, tags: Sequence[dict[str, str]] = ()) -> str:
        """Make a launch template with the small type, and tags of its own, and return its name."""
        name = self.name("template", suffix)
        data = {"ImageId": image or self.image, "InstanceType": INSTANCE_TYPE}
        self.clients("ec2").create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={**data, "TagSpecifications": self.tag_specifications("instance", "volume")},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": [*self.tags, *tags]}],
        )
        return name

    def group(self, suffix: str, **options: Any) -> str:
        """Make an empty Auto Scaling group of at most two instances and return its name."""
        template = {"LaunchTemplateName": self.template(suffix), "Version": "$Latest"}
        name = self.name("group", suffix)
        arguments = {
            "MinSize": 0,
            "MaxSize": 2,
            **({} if "MixedInstancesPolicy" in options else {"LaunchTemplate": template}),
            "VPCZoneIdentifier": ",".join(self.subnets.values()),
            "Tags": [{**tag, "PropagateAtLaunch": True} for tag in self.tags],
        } | options
        self.clients("autoscaling").create_auto_scaling_group(AutoScalingGroupName=name, **arguments)
        return name

    def described(self, group: str) -> dict[str, Any]:
        """Return the description of a group."""
        groups = self.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        description: dict[str, Any] = groups["AutoScalingGroups"][0]
        return description

    def states(self, group: str) -> dict[str, str]:
        """Return the lifecycle states of a group's instances."""
        return {
            member["InstanceId"]: member["LifecycleState"] for member in self.described(group)["Instances"]
        }

    def scale(self, group: str, count: int) -> list[str]:
        """Set a group's desired capacity and return its instances once all are in service."""
        self.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=count)
        return self.wait_until(
            lambda: (
                [*states]
                if len(states := self.states(group)) == count and {*states.values()} == {"InService"}
                else None
            ),
            f"{count} instances in service",
        )


@dataclass(frozen=True, slots=True)
class Belief:
    """A sentence about AWS, the code that rests on it, and its trial.

    ``trial`` returns what was seen, or raises ``Falsified``.
    """

    name: str
    sentence: str
    rests: str
    trial: Callable[[Bed], str]


def belief(rests: str) -> Callable[[Callable[[Bed], str]], Belief]:
    """Turn a function into a belief, its docstring into the sentence; ``rests`` relies on it."""

    def decorate(trial: Callable[[Bed], str]) -> Belief:
        name = trial.__name__.replace("_", "-")
        return Belief(name, " ".join((trial.__doc__ or "").split()), rests, trial)

    return decorate
