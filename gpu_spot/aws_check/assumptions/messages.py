"""SQS and EventBridge: how wake-up messages reach the controller."""

from __future__ import annotations

import json
from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import TAG, AwsTestBed, Falsified

_WAKE_UPS: Final = "infra/components/control/wake_ups.py"
_SQS: Final = "Amazon SQS developer guide"


def _expect_no_message(test_bed: AwsTestBed, url: str, violation: str) -> None:
    if test_bed.receive(url) is not None:
        raise Falsified(violation)


def _policy(queue: str, rule: str) -> dict[str, Any]:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


@assumes(
    f'{_SQS}, "message timers"',
    "lambdas/aws/capacity/wake_up_messages.py",
    "it is received at once, or never",
)
def delayed_message(test_bed: AwsTestBed) -> str:
    """A delayed message is visible after its delay, not before."""
    url = test_bed.queue("delay")
    test_bed.clients("sqs").send_message(QueueUrl=url, MessageBody="{}", DelaySeconds=20)
    _expect_no_message(test_bed, url, "it was received at once")
    sent = test_bed.clock.now()
    test_bed.wait_until(lambda: test_bed.receive(url), "the message", 60)
    return f"received {test_bed.clock.now() - sent:.0f} s later"


@assumes("SendMessage", "lambdas/aws/capacity/wake_up_messages.py", "it is accepted")
def longest_delay(test_bed: AwsTestBed) -> str:
    """A delay above 900 s is rejected."""
    url, sqs = test_bed.queue("longest"), test_bed.clients("sqs")
    return test_bed.expect_refusal(
        lambda: sqs.send_message(QueueUrl=url, MessageBody="{}", DelaySeconds=901), "DelaySeconds"
    )


@assumes(f'{_SQS}, "visibility timeout"', _WAKE_UPS, "it is received twice, or not again")
def visibility(test_bed: AwsTestBed) -> str:
    """A received message is hidden, and visible again once its visibility timeout is set to 0."""
    url, sqs = test_bed.queue("visibility", VisibilityTimeout="300"), test_bed.clients("sqs")
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    message = test_bed.wait_until(lambda: test_bed.receive(url), "the message", 60)
    _expect_no_message(test_bed, url, "it was received twice")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    test_bed.wait_until(lambda: test_bed.receive(url), "the message again", 60)
    return "hidden, visible again with timeout 0"


@assumes(f'{_SQS}, "dead-letter queues"', _WAKE_UPS, "it is received more often")
def dead_letters(test_bed: AwsTestBed) -> str:
    """After maxReceiveCount a message is moved to the dead-letter queue."""
    dead_letter_queue, sqs = test_bed.queue("dead"), test_bed.clients("sqs")
    policy = {"deadLetterTargetArn": test_bed.queue_arn(dead_letter_queue), "maxReceiveCount": 2}
    url = test_bed.queue("living", VisibilityTimeout="1", RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    receive_count = 0

    def moved() -> bool:
        nonlocal receive_count
        receive_count += test_bed.receive(url) is not None
        return test_bed.receive(dead_letter_queue) is not None

    test_bed.wait_until(moved, "a dead letter", 120)
    if receive_count != 2:
        raise Falsified(f"it was received {receive_count} times")
    return "received twice, then in the dead-letter queue"


@assumes('EventBridge user guide, "Using resource-based policies"', _WAKE_UPS, "no event arrives")
def event_into_an_encrypted_queue(test_bed: AwsTestBed) -> str:
    """EventBridge sends to a queue with SQS-managed encryption if its policy names the rule."""
    events, name = test_bed.clients("events"), test_bed.resource_name("event")
    source = f"gpu-spot.check.{test_bed.run}"
    rule = events.put_rule(
        Name=name, EventPattern=json.dumps({"source": [source]}), Tags=[{"Key": TAG, "Value": test_bed.run}]
    )["RuleArn"]
    url = test_bed.queue("event", SqsManagedSseEnabled="true")
    arn, sqs = test_bed.queue_arn(url), test_bed.clients("sqs")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(_policy(arn, rule))})
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])

    def arrives() -> Any:
        # Repeat: rule and policy are eventually consistent.
        events.put_events(Entries=[{"Source": source, "DetailType": "check", "Detail": "{}"}])
        return test_bed.receive(url)

    body = json.loads(test_bed.wait_until(arrives, "the event in the queue", 120)["Body"])
    if (body.get("source"), body.get("detail-type")) != (source, "check"):
        raise Falsified(f"the message is {body}")
    return f"fields {', '.join(sorted(body))}"
