"""AWS calls as IAM requests: action, resources, and condition keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pulumi_on_moto import Deployment
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.running.functions import Call
from tests.iam import Request


class Authorisation:
    """Turns calls into IAM's requests at the moment they are made: resources may be gone later.

    Source: service authorisation reference of each service. An operation that is not named here raises
    ``KeyError``.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    def requests(self, call: Call) -> Iterator[Request]:
        operation = f"{_PREFIX.get(call.service, call.service)}:{call.operation}"
        action = _ACTION.get(operation, operation)
        resources = _RESOURCES[action]
        if resources is None:
            yield Request(action)
            return
        for arn, context in resources(self, call.params):
            yield Request(action, arn, context)
        for made in call.params.get("TagSpecifications", ()):
            # Tagging on creation is an action of its own, on what is being made.
            context = {**_requested(made["Tags"]), "ec2:CreateAction": [call.operation]}
            yield Request("ec2:CreateTags", self.ec2(made["ResourceType"], "*"), context)

    def arn(self, service: str, rest: str) -> str:
        return f"arn:aws:{service}:{self._clients.region}:{ACCOUNT}:{rest}"

    def ec2(self, kind: str, identity: str) -> str:
        """Return the ARN of a resource of EC2; snapshots belong to no account there."""
        account = "" if kind == "snapshot" else ACCOUNT
        return f"arn:aws:ec2:{self._clients.region}:{account}:{kind}/{identity}"

    def table(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("dynamodb", f"table/{params['TableName']}"), {}

    def item(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """One item, of which conditions see the partition key."""
        table = self._clients("dynamodb").describe_table(TableName=params["TableName"])["Table"]
        [key] = [part["AttributeName"] for part in table["KeySchema"] if part["KeyType"] == "HASH"]
        [value] = params["Key" if "Key" in params else "Item"][key].values()
        context = {"dynamodb:LeadingKeys": [value]}
        if "UpdateExpression" in params:
            keys = [part["AttributeName"] for part in table["KeySchema"]]
            named = params.get("ExpressionAttributeNames", {}).values()
            context["dynamodb:Attributes"] = sorted({*keys, *named, *_words(params["UpdateExpression"])})
        yield table["TableArn"], context

    def batch(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """Items of several tables."""
        for name, request in params["RequestItems"].items():
            table = self._clients("dynamodb").describe_table(TableName=name)["Table"]
            [key] = [part["AttributeName"] for part in table["KeySchema"] if part["KeyType"] == "HASH"]
            keys = sorted({value for item in request["Keys"] for value in item[key].values()})
            yield table["TableArn"], {"dynamodb:LeadingKeys": keys}

    def queue(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("sqs", params["QueueUrl"].rpartition("/")[2]), {}

    def topic(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield params["TopicArn"], {}

    def parameters(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("ssm", f"parameter{params['Path']}"), {}

    def parameter(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.arn("ssm", f"parameter{params['Name']}"), {}

    def bucket(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield f"arn:aws:s3:::{params['Bucket']}", {"s3:prefix": [params.get("Prefix", "")]}

    def object(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield f"arn:aws:s3:::{params['Bucket']}/{params['Key']}", {}

    def secret(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self._clients("secretsmanager").describe_secret(SecretId=params["SecretId"])["ARN"], {}

    def namespace(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield "*", {"cloudwatch:namespace": [params["Namespace"]]}

    def files(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """A mount: no API call, but authorised like one."""
        [point] = self._clients("efs").describe_access_points(AccessPointId=params["AccessPointId"])[
            "AccessPoints"
        ]
        context = {"elasticfilesystem:AccessPointArn": [point["AccessPointArn"]]}
        yield self.arn("elasticfilesystem", f"file-system/{params['FileSystemId']}"), context

    def new_volume(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.ec2("volume", "*"), _requested(_specified(params))
        if "SnapshotId" in params:
            yield from self._tagged([params["SnapshotId"]])

    def new_snapshot(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield self.ec2("snapshot", "*"), _requested(_specified(params))
        yield from self._tagged([params["VolumeId"]])

    def retagged(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        for arn, context in self._tagged(params["Resources"]):
            yield arn, {**context, **_requested(params["Tags"])}

    def volume(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield from self._tagged([params[key] for key in ("VolumeId", "InstanceId") if key in params])

    def snapshot(self, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        yield from self._tagged([params["SnapshotId"]])

    def _tagged(self, ids: Sequence[str]) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """Resources of EC2 that exist, with their tags; one that does not exist has none."""
        for identity in ids:
            filters = [{"Name": "resource-id", "Values": [identity]}]
            tags = self._clients("ec2").describe_tags(Filters=filters)["Tags"]
            kind = {"vol": "volume", "snap": "snapshot", "i": "instance"}[identity.partition("-")[0]]
            yield self.ec2(kind, identity), _tags(tags)

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


def _words(expression: str) -> Iterator[str]:
    """Yield the attributes that an update names outright."""
    for word in re.findall(r"(?<![:#\w])[a-z]\w*", expression):
        if word != "if_not_exists":
            yield word


def _tags(tags: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {f"aws:ResourceTag/{tag['Key']}": [tag["Value"]] for tag in tags}


def _requested(tags: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    keys = {f"aws:RequestTag/{tag['Key']}": [tag["Value"]] for tag in tags}
    return {**keys, "aws:TagKeys": [tag["Key"] for tag in tags]}


def _specified(params: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return [tag for made in params["TagSpecifications"] for tag in made["Tags"]]


def of_function(deployment: Deployment, name: str) -> list[dict[str, Any]]:
    """Return the policy documents of the role of the one function whose name has ``name`` in it."""
    [function] = [
        one for one in deployment.of_type("aws:lambda/function:Function") if name in one.outputs["name"]
    ]
    return documents(deployment.clients, function.inputs["role"].rpartition("/")[2])


def documents(clients: AwsClients, role: str) -> list[dict[str, Any]]:
    """Return the policy documents of a role, inline and attached, as IAM has them."""
    iam = clients("iam")
    found = [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        policy = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]
        version = iam.get_policy_version(
            PolicyArn=attached["PolicyArn"], VersionId=policy["DefaultVersionId"]
        )
        found.append(version["PolicyVersion"]["Document"])
    return [json.loads(d) if isinstance(d, str) else d for d in found]


_PREFIX: Final = {"monitoring": "cloudwatch"}
_ACTION: Final = {
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
}
"""Operations whose permission has another name."""
_Resources = Callable[[Authorisation, Mapping[str, Any]], Iterator[tuple[str, dict[str, list[str]]]]]
_RESOURCES: Final[dict[str, _Resources | None]] = {
    "autoscaling:CompleteLifecycleAction": Authorisation.group,
    "autoscaling:DescribeAutoScalingGroups": None,
    "autoscaling:DescribeAutoScalingInstances": None,
    "autoscaling:DescribeScalingActivities": None,
    "autoscaling:LaunchInstances": Authorisation.group,
    "autoscaling:RecordLifecycleActionHeartbeat": Authorisation.group,
    "autoscaling:SetDesiredCapacity": Authorisation.group,
    "autoscaling:SetInstanceProtection": Authorisation.group,
    "autoscaling:TerminateInstanceInAutoScalingGroup": Authorisation.group,
    "cloudwatch:PutMetricData": Authorisation.namespace,
    "dynamodb:BatchGetItem": Authorisation.batch,
    "dynamodb:DeleteItem": Authorisation.item,
    "dynamodb:GetItem": Authorisation.item,
    "dynamodb:PutItem": Authorisation.item,
    "dynamodb:Query": Authorisation.table,
    "dynamodb:UpdateItem": Authorisation.item,
    "ec2:AttachVolume": Authorisation.volume,
    "ec2:CreateSnapshot": Authorisation.new_snapshot,
    "ec2:CreateTags": Authorisation.retagged,
    "ec2:CreateVolume": Authorisation.new_volume,
    "ec2:DeleteSnapshot": Authorisation.snapshot,
    "ec2:DeleteVolume": Authorisation.volume,
    "ec2:DescribeCapacityReservations": None,
    "ec2:DescribeInstances": None,
    "ec2:DescribeInstanceTypes": None,
    "ec2:DescribeSnapshots": None,
    "ec2:DescribeSpotFleetInstances": None,
    "ec2:DescribeSpotFleetRequestHistory": None,
    "ec2:DescribeSpotFleetRequests": None,
    "ec2:DescribeSpotInstanceRequests": None,
    "ec2:DescribeSpotPriceHistory": None,
    "ec2:DescribeVolumes": None,
    "ec2:DetachVolume": Authorisation.volume,
    "ec2:ModifyVolume": Authorisation.volume,
    "ec2:ModifySpotFleetRequest": Authorisation.fleet,
    "ec2:TerminateInstances": Authorisation.instances,
    "ecr:GetAuthorizationToken": None,
    "elasticfilesystem:ClientMount": Authorisation.files,
    "elasticfilesystem:ClientWrite": Authorisation.files,
    "s3:GetObject": Authorisation.object,
    "s3:ListBucket": Authorisation.bucket,
    "s3:PutObject": Authorisation.object,
    "secretsmanager:GetSecretValue": Authorisation.secret,
    "sns:Publish": Authorisation.topic,
    "sqs:ChangeMessageVisibility": Authorisation.queue,
    "sqs:SendMessage": Authorisation.queue,
    "ssm:GetParameter": Authorisation.parameter,
    "ssm:GetParametersByPath": Authorisation.parameters,
    "ssm:PutParameter": Authorisation.parameter,
}
"""What each action is authorised on; None: the service knows no resource for it."""
