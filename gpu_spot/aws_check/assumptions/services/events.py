"""EventBridge: this stack's patterns against the events of AWS's documentation, and events as they arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from gpu_spot.aws_check import roles
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import PREFIX, TAG, AwsTestBed, Falsified
from infra.components.control.wake_ups import event_patterns

_WAKE_UPS: Final = "infra/components/control/wake_ups.py"
_EC2_EVENTS: Final = (
    'EC2 user guide, "Spot Instance interruption notices" and "EC2 instance rebalance recommendations"'
)
_GROUP_EVENTS: Final = 'Auto Scaling guide, "Auto Scaling group event reference"'


def _event(source: str, kind: str, detail: Mapping[str, Any]) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": kind,
            "source": source,
            "account": "123456789012",
            "time": "2026-01-01T00:00:00Z",
            "region": "us-east-1",
            "resources": [],
            "detail": detail,
        }
    )


def _test(test_bed: AwsTestBed, rule: str, matching: tuple[str, ...], not_matching: tuple[str, ...]) -> None:
    """Raise ``Falsified`` unless a rule's pattern matches these events and not the others."""
    client = test_bed.clients("events")
    pattern = json.dumps(event_patterns(PREFIX, has_fleets=True)[rule])
    for events, expected in ((matching, True), (not_matching, False)):
        for event in events:
            if client.test_event_pattern(EventPattern=pattern, Event=event)["Result"] is not expected:
                raise Falsified(f"{rule}: {event} is {'not ' if expected else ''}matched")


@assumes(_EC2_EVENTS, _WAKE_UPS, "one of the events does not match")
def patterns_of_notices(test_bed: AwsTestBed) -> str:
    """The rules' patterns match the documented interruption warning and rebalance recommendation."""
    warning = _event(
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        {"instance-id": "i-1", "instance-action": "terminate"},
    )
    recommendation = _event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"})
    _test(test_bed, "interruption", (warning,), (recommendation,))
    _test(test_bed, "rebalance", (recommendation,), (warning,))
    return "two patterns match their events only"


@assumes(_GROUP_EVENTS, _WAKE_UPS, "another group's event matches, or this stack's does not")
def patterns_of_groups(test_bed: AwsTestBed) -> str:
    """A prefix of AutoScalingGroupName selects the events of this stack's groups."""
    kind = "EC2 Instance Launch Unsuccessful"
    own_event = _event("aws.autoscaling", kind, {"AutoScalingGroupName": f"{PREFIX}a"})
    foreign_event = _event("aws.autoscaling", kind, {"AutoScalingGroupName": "another"})
    _test(test_bed, "launch", (own_event,), (foreign_event,))
    return "its own group's event matches only"


@assumes(
    'AWS Health user guide, "Reference: AWS Health events Amazon EventBridge schema"',
    _WAKE_UPS,
    "a retirement does not match, or another service's event does",
)
def patterns_of_scheduled_changes(test_bed: AwsTestBed) -> str:
    """The pattern of AWS Health matches scheduled changes of EC2 by a prefix of their code."""
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
    }
    own_event = _event("aws.health", "AWS Health Event", detail)
    foreign_event = _event("aws.health", "AWS Health Event", {**detail, "service": "RDS"})
    _test(test_bed, "health", (own_event,), (foreign_event,))
    return "a retirement matches, another service's change does not"


def _listen(test_bed: AwsTestBed, suffix: str, pattern: Mapping[str, Any]) -> str:
    """Create a rule with a pattern and a queue as target; return the queue's URL."""
    events, name = test_bed.clients("events"), test_bed.resource_name(suffix)
    rule = events.put_rule(
        Name=name, EventPattern=json.dumps(pattern), Tags=[{"Key": TAG, "Value": test_bed.run}]
    )["RuleArn"]
    url = test_bed.queue(suffix, SqsManagedSseEnabled="true")
    arn = test_bed.queue_arn(url)
    statement = {
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    test_bed.clients("sqs").set_queue_attributes(
        QueueUrl=url, Attributes={"Policy": roles.document([statement])}
    )
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    test_bed.clock.sleep(30)  # rules are eventually consistent
    return url


@assumes(
    'EC2 user guide, "Automate Amazon EC2 using EventBridge", state changes',
    _WAKE_UPS,
    "no event within two minutes",
    instances=1,
    unsupported_reason="moto sends no events of instances",
)
def loss_is_reported(test_bed: AwsTestBed) -> str:
    """EC2 sends a state-change event when an instance shuts down."""
    url = _listen(test_bed, "loss", event_patterns(PREFIX, has_fleets=False)["state-change"])
    instance = test_bed.instance(next(iter(test_bed.subnets)))
    test_bed.clients("ec2").terminate_instances(InstanceIds=[instance])
    started = test_bed.clock.now()

    def arrived() -> bool:
        message = test_bed.receive(url)
        return message is not None and json.loads(message["Body"])["detail"].get("instance-id") == instance

    test_bed.wait_until(arrived, "the event", 120)
    return f"received {test_bed.clock.now() - started:.0f} s later"


@assumes(
    _GROUP_EVENTS,
    _WAKE_UPS,
    "no event with the group's name",
    instances=1,
    unsupported_reason="moto sends no events of groups",
)
def launch_is_reported(test_bed: AwsTestBed) -> str:
    """EC2 Auto Scaling sends an event with the group's name after a launch."""
    url = _listen(test_bed, "launch", event_patterns(PREFIX, has_fleets=False)["launch"])
    group = test_bed.group("launch")
    test_bed.scale_to(group, 1)

    def arrived() -> str | None:
        message = test_bed.receive(url)
        event = json.loads(message["Body"]) if message else {"detail": {}}
        return str(event["detail-type"]) if event["detail"].get("AutoScalingGroupName") == group else None

    return test_bed.wait_until(arrived, "the event", 120)
