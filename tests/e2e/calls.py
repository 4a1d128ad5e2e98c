"""AWS calls as IAM sees them: action, resources, and what conditions can ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpu_spot.local.functions import Call
from gpu_spot.local.permissions import Request
from gpu_spot.local.sandbox import ACCOUNT, Clients


class Authorisation:
    """Turns calls into IAM's requests at the moment they are made: resources may be gone later.

    Source: service authorisation reference of each service. An operation that is not named here raises
    ``KeyError``.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def requests(self, call: Call) -> Iterator[Request]:
        action = f"{_PREFIX.get(call.service, call.service)}:{call.operation}"
        resources = _RESOURCES[action]
        if resources is None:
            yield Request(action)
            return
        for arn, context in resources(self, call.params):
            yield Request(action, arn, context)

    def arn(self, service: str, rest: str) -> str:
        return f"arn:aws:{service}:{self._clients.region}:{ACCOUNT}:{rest}"

    def table(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("dynamodb", f"table/{params['TableName']}"), {}

    def queue(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("sqs", params["QueueUrl"].rpartition("/")[2]), {}

    def parameters(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("ssm", f"parameter{params['Path']}"), {}

    def group(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        autoscaling = self._clients("autoscaling")
        name = params.get("AutoScalingGroupName")
        if name is None:
            (member,) = autoscaling.describe_auto_scaling_instances(InstanceIds=[params["InstanceId"]])[
                "AutoScalingInstances"
            ]
            name = member["AutoScalingGroupName"]
        (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        yield group["AutoScalingGroupARN"], _tags(group["Tags"])

    def fleet(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        ids = [params["SpotFleetRequestId"]]
        (fleet,) = self._clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=ids)[
            "SpotFleetRequestConfigs"
        ]
        yield self.arn("ec2", f"spot-fleet-request/{ids[0]}"), _tags(fleet["Tags"])

    def instances(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        found = self._clients("ec2").describe_instances(InstanceIds=params["InstanceIds"])["Reservations"]
        for instance in (instance for reservation in found for instance in reservation["Instances"]):
            arn = self.arn("ec2", f"instance/{instance['InstanceId']}")
            yield arn, _tags(instance["Tags"])


def _tags(tags: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {f"aws:ResourceTag/{tag['Key']}": [tag["Value"]] for tag in tags}


_PREFIX: Final = {"monitoring": "cloudwatch"}
_Resources = Callable[[Authorisation, Mapping[str, Any]], Iterator[tuple[str, dict[str, list[str]]]]]
_RESOURCES: Final[dict[str, _Resources | None]] = {
    "autoscaling:DescribeAutoScalingGroups": None,
    "autoscaling:DescribeScalingActivities": None,
    "autoscaling:SetDesiredCapacity": Authorisation.group,
    "autoscaling:TerminateInstanceInAutoScalingGroup": Authorisation.group,
    "dynamodb:GetItem": Authorisation.table,
    "dynamodb:PutItem": Authorisation.table,
    "dynamodb:Query": Authorisation.table,
    "ec2:DescribeInstances": None,
    "ec2:DescribeSpotFleetInstances": None,
    "ec2:DescribeSpotFleetRequestHistory": None,
    "ec2:DescribeSpotFleetRequests": None,
    "ec2:DescribeSpotInstanceRequests": None,
    "ec2:ModifySpotFleetRequest": Authorisation.fleet,
    "ec2:TerminateInstances": Authorisation.instances,
    "sqs:SendMessage": Authorisation.queue,
    "ssm:GetParametersByPath": Authorisation.parameters,
}
"""What each action is authorised on; None: the service knows no resource for it."""
