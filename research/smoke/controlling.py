"""Beliefs about what the functions ask and hear: groups, events, tables, permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError
from botocore.session import get_session

from contracts import names
from infra.components.control.wake_ups import event_patterns
from research.smoke.bed import IMAGE_PARAMETER, Bed, Falsified, belief, policy_of

_GROUPS: Final = "lambdas/aws/capacity/auto_scaling.py"
_WAKE_UPS: Final = "infra/components/control/wake_ups.py"
_PREFIX: Final = "gpu-spot-smoke-"


@belief(_GROUPS)
def desired_above_the_maximum(bed: Bed) -> str:
    """A desired capacity above MaxSize is refused."""
    group, client = bed.group("above"), bed.clients("autoscaling")
    return bed.refusal(
        lambda: client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3), "above max value"
    )


@belief(_GROUPS)
def release_of_an_instance(bed: Bed) -> str:
    """Termination with decrement ends the named instance only, also a protected one, and starts no other."""
    group = bed.group("release", NewInstancesProtectedFromScaleIn=True)
    first, second = bed.scale(group, 2)
    bed.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=first, ShouldDecrementDesiredCapacity=True
    )
    bed.wait_until(lambda: first not in bed.states(group), "the instance is gone")
    desired, states = bed.described(group)["DesiredCapacity"], bed.states(group)
    if (desired, states) != (1, {second: "InService"}):
        raise Falsified(f"the desired capacity is {desired}, remaining are {states}")
    return "one of two protected instances ended, desired capacity 1"


@belief(_GROUPS)
def release_of_an_unknown_instance(bed: Bed) -> str:
    """Termination of an instance that is gone is refused in the words "not found"."""
    client = bed.clients("autoscaling")
    return bed.refusal(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=True
        ),
        "not found",
    )


@belief("lambdas/aws/memory.py")
def conditional_write(bed: Bed) -> str:
    """A write over an old version is refused with ConditionalCheckFailedException: one of two runs acts."""
    client, table = bed.clients("dynamodb"), bed.name("table", "memory")
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "group", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "group", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        Tags=bed.tags,
    )
    bed.wait_until(
        lambda: client.describe_table(TableName=table)["Table"]["TableStatus"] == "ACTIVE", "the table"
    )

    def write() -> None:
        client.put_item(
            TableName=table,
            Item={"group": {"S": "one"}, "version": {"N": "1"}},
            ConditionExpression="attribute_not_exists(#k) OR #v = :v",
            ExpressionAttributeNames={"#k": "group", "#v": "version"},
            ExpressionAttributeValues={":v": {"N": "0"}},
        )

    write()
    return bed.refusal(write, "ConditionalCheckFailedException")


def _matches(bed: Bed, rule: str, kind: str, detail: Mapping[str, str], source: str = "aws.ec2") -> bool:
    """Return whether a rule of a stack matches an event."""
    fixed = {"version": "0", "id": "1", "account": "123456789012", "time": "2026-01-01T00:00:00Z"}
    event = {**fixed, "region": "us-east-1", "resources": [], "detail": dict(detail)}
    event |= {"detail-type": kind, "source": source}
    pattern = json.dumps(event_patterns(_PREFIX, has_fleets=True)[rule])
    response = bed.clients("events").test_event_pattern(EventPattern=pattern, Event=json.dumps(event))
    return bool(response["Result"])


def _expect(**checks: bool) -> str:
    """Raise ``Falsified`` unless all of these are true."""
    if wrong := [name.replace("_", " ") for name, is_so in checks.items() if not is_so]:
        raise Falsified(f"not so: {', '.join(wrong)}")
    return ", ".join(name.replace("_", " ") for name in checks)


@belief(_WAKE_UPS)
def patterns_of_notices(bed: Bed) -> str:
    """The rules match the documented interruption warning and rebalance recommendation, each its own."""
    warning, advice = "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"
    detail = {"instance-id": "i-1", "instance-action": "terminate"}
    return _expect(
        warning_matches=_matches(bed, "interruption", warning, detail),
        recommendation_matches=_matches(bed, "rebalance", advice, detail),
        no_other_matches=not _matches(bed, "interruption", advice, detail),
    )


@belief(_WAKE_UPS)
def patterns_of_groups(bed: Bed) -> str:
    """A prefix of AutoScalingGroupName selects the events of one stack's groups."""
    kind = "EC2 Instance Launch Unsuccessful"
    own_group, other_group = {"AutoScalingGroupName": f"{_PREFIX}a"}, {"AutoScalingGroupName": "another"}
    return _expect(
        own_group_matches=_matches(bed, "launch", kind, own_group, "aws.autoscaling"),
        other_group_does_not=not _matches(bed, "launch", kind, other_group, "aws.autoscaling"),
    )


_BOUND: Final = (
    ("autoscaling:SetDesiredCapacity", "autoScalingGroup:*:autoScalingGroupName/x", "gpu-spot:stack"),
    ("ec2:DeleteVolume", "volume/vol-0123456789abcdef0", "gpu-spot:job"),
    ("dynamodb:UpdateItem", "table/x", ""),
)
"""Actions, a resource, and its tag; without one the key of a table's item binds."""


@belief("infra/iam/controller_statements.py")
def conditions_bind(bed: Bed) -> str:
    """SetDesiredCapacity and DeleteVolume can be bound to a tag, UpdateItem to a row's key."""
    decisions = {}
    for action, resource, tag in _BOUND:
        arn = bed.arn(action.partition(":")[0], resource)
        key = f"aws:ResourceTag/{tag}" if tag else "dynamodb:LeadingKeys"
        operator, kind = ("StringEquals", "string") if tag else ("ForAllValues:StringEquals", "stringList")
        allowed = {"Effect": "Allow", "Action": action, "Resource": arn}
        document = policy_of({**allowed, "Condition": {operator: {key: ["me"]}}})
        decisions[action] = [
            bed.clients("iam").simulate_custom_policy(
                PolicyInputList=[document],
                ActionNames=[action],
                ResourceArns=[arn],
                ContextEntries=[{"ContextKeyName": key, "ContextKeyValues": [it], "ContextKeyType": kind}],
            )["EvaluationResults"][0]["EvalDecision"]
            for it in ("me", "other")
        ]
    return _expect(**{action: them == ["allowed", "implicitDeny"] for action, them in decisions.items()})


def client_of_role(bed: Bed, arn: str) -> Any:
    """Return a client of EC2 with the credentials of a role."""
    keys = bed.clients("sts").assume_role(RoleArn=arn, RoleSessionName="smoke")["Credentials"]
    secret = {"aws_secret_access_key": keys["SecretAccessKey"], "aws_session_token": keys["SessionToken"]}
    region = bed.clients("ec2").meta.region_name
    return get_session().create_client("ec2", region, aws_access_key_id=keys["AccessKeyId"], **secret)


@belief("infra/iam/controller_statements.py")
def fleets_from_own_templates(bed: Bed) -> str:
    """The controller's CreateFleet takes the stack's templates alone, and by one condition their image alone.

    Its role has no such condition: EC2's reference does not tell the key's value where a fleet overrides.
    """
    mine = bed.template("own", tags=[{"Key": names.TAG_STACK, "Value": bed.run}])
    role = bed.role("fleets", {"AWS": f"arn:{bed.caller[0]}:iam::{bed.caller[1]}:root"})
    region = {"StringEquals": {"ec2:Region": bed.clients("ec2").meta.region_name}}
    of_the_template = {**region, "Bool": {"ec2:IsLaunchTemplateResource": "true"}}
    of_the_stack = {"StringEquals": {f"aws:ResourceTag/{names.TAG_STACK}": bed.run}}
    parts = [bed.arn("ec2", f"{kind}/*") for kind in ("fleet", "instance", "subnet", "volume")]
    image = bed.arn("ec2", "image/*").replace(bed.caller[1], "")
    rows = (
        ([bed.arn("ec2", "launch-template/*")], of_the_stack),
        (parts, region),
        ([image], of_the_template),
    )
    allowed = {"Effect": "Allow", "Action": "ec2:CreateFleet"}
    statements = [{**allowed, "Resource": arns, "Condition": condition} for arns, condition in rows]
    inline = {"PolicyName": "own", "PolicyDocument": policy_of(*statements)}
    bed.clients("iam").put_role_policy(RoleName=role.split("/")[1], **inline)
    bed.sleep(15)  # IAM is eventually consistent
    ec2, subnet = client_of_role(bed, role), next(iter(bed.subnets.values()))
    another = bed.clients("ssm").get_parameter(Name=IMAGE_PARAMETER.replace("ami-k", "ami-minimal-k"))

    def is_refused(code: str, template: str, **override: str) -> bool:
        specification = {"LaunchTemplateName": template, "Version": "1"}
        overrides = [{"SubnetId": subnet, **override}]
        config = {"LaunchTemplateSpecification": specification, "Overrides": overrides}
        capacity = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"}
        fleet = {"TargetCapacitySpecification": capacity, "LaunchTemplateConfigs": [config]}
        try:
            ec2.create_fleet(DryRun=True, Type="instant", **fleet)
        except ClientError as error:
            return bool(error.response["Error"]["Code"] == code)
        return False

    return _expect(
        own_template_is_allowed=is_refused("DryRunOperation", mine),
        another_template_is_refused=is_refused("UnauthorizedOperation", bed.template("other")),
        another_image_is_refused=is_refused(
            "UnauthorizedOperation", mine, ImageId=another["Parameter"]["Value"]
        ),
    )
