"""Beliefs about what the functions ask and hear: groups, events, tables, permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from infra.components.control.wake_ups import event_patterns
from research.smoke.bed import Bed, Falsified, belief

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


def _bounds(bed: Bed, action: str, arn: str, operator: str, key: str, kind: str = "string") -> str:
    """Raise ``Falsified`` unless a condition allows the named value and no other in IAM's simulator."""
    statement = {
        "Effect": "Allow",
        "Action": action,
        "Resource": arn,
        "Condition": {operator: {key: ["mine"]}},
    }
    decisions = [
        bed.clients("iam").simulate_custom_policy(
            PolicyInputList=[json.dumps({"Version": "2012-10-17", "Statement": [statement]})],
            ActionNames=[action],
            ResourceArns=[arn],
            ContextEntries=[{"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": kind}],
        )["EvaluationResults"][0]["EvalDecision"]
        for value in ("mine", "theirs")
    ]
    return _expect(own_is_allowed=decisions[0] == "allowed", other_is_denied=decisions[1] == "implicitDeny")


@belief("infra/iam/controller_statements.py")
def tags_bound_groups(bed: Bed) -> str:
    """SetDesiredCapacity can be bound to groups with a tag."""
    arn = bed.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/gpu-spot-x")
    key = "aws:ResourceTag/gpu-spot:stack"
    return _bounds(bed, "autoscaling:SetDesiredCapacity", arn, "StringEquals", key)


@belief("userdata/agent/aws/permissions.py")
def tags_bound_volumes(bed: Bed) -> str:
    """DeleteVolume can be bound to volumes with a tag."""
    arn, key = bed.arn("ec2", "volume/vol-0123456789abcdef0"), "aws:ResourceTag/gpu-spot:job"
    return _bounds(bed, "ec2:DeleteVolume", arn, "StringEquals", key)


@belief("userdata/agent/aws/permissions.py")
def keys_bound_items(bed: Bed) -> str:
    """UpdateItem can be bound to items with a key: a worker writes its own row of the registry only."""
    operator, key = "ForAllValues:StringEquals", "dynamodb:LeadingKeys"
    return _bounds(bed, "dynamodb:UpdateItem", bed.arn("dynamodb", "table/x"), operator, key, "stringList")
