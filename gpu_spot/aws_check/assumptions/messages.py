"""SQS and EventBridge: how wake-ups reach the controller."""

from __future__ import annotations

import json
from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import TAG, Falsified, Lab

_WAKE_UPS: Final = "infra/components/control/wake_ups.py"
_SQS: Final = "Amazon SQS developer guide"


def _silent(lab: Lab, url: str, what: str) -> None:
    if lab.received(url) is not None:
        raise Falsified(what)


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
    f'{_SQS}, "message timers"', "lambdas/aws/capacity/wake_up_messages.py", "it comes at once, or never"
)
def delayed_message(lab: Lab) -> str:
    """A delayed message shows after its delay, not before."""
    url = lab.queue("delay")
    lab.clients("sqs").send_message(QueueUrl=url, MessageBody="{}", DelaySeconds=20)
    _silent(lab, url, "it came at once")
    sent = lab.clock.now()
    lab.until(lambda: lab.received(url), "it comes", 60)
    return f"it came {lab.clock.now() - sent:.0f} s later"


@assumes("SendMessage", "lambdas/aws/capacity/wake_up_messages.py", "it is accepted")
def longest_delay(lab: Lab) -> str:
    """A delay above 900 s is refused."""
    url, sqs = lab.queue("longest"), lab.clients("sqs")
    return lab.refused(
        lambda: sqs.send_message(QueueUrl=url, MessageBody="{}", DelaySeconds=901), "DelaySeconds"
    )


@assumes(f'{_SQS}, "visibility timeout"', _WAKE_UPS, "it comes twice, or not again")
def visibility(lab: Lab) -> str:
    """A message that somebody has is hidden, and shows again once its timeout is made 0."""
    url, sqs = lab.queue("visibility", VisibilityTimeout="300"), lab.clients("sqs")
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    message = lab.until(lambda: lab.received(url), "it comes", 60)
    _silent(lab, url, "it came twice")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    lab.until(lambda: lab.received(url), "it comes back", 60)
    return "hidden, and back once the timeout was made 0"


@assumes(f'{_SQS}, "dead-letter queues"', _WAKE_UPS, "it comes more often")
def dead_letters(lab: Lab) -> str:
    """After maxReceiveCount a message is a dead letter."""
    dead, sqs = lab.queue("dead"), lab.clients("sqs")
    policy = {"deadLetterTargetArn": lab.queue_arn(dead), "maxReceiveCount": 2}
    url = lab.queue("living", VisibilityTimeout="1", RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    seen = 0

    def moved() -> bool:
        nonlocal seen
        seen += lab.received(url) is not None
        return lab.received(dead) is not None

    lab.until(moved, "a dead letter", 120)
    if seen != 2:
        raise Falsified(f"it was received {seen} times")
    return "received twice, then among the dead letters"


@assumes('EventBridge user guide, "Using resource-based policies"', _WAKE_UPS, "no event arrives")
def event_into_an_encrypted_queue(lab: Lab) -> str:
    """EventBridge sends into a queue that SQS encrypts, by a policy that names its rule."""
    events, name = lab.clients("events"), lab.name("event")
    source = f"gpu-spot.check.{lab.run}"
    rule = events.put_rule(
        Name=name, EventPattern=json.dumps({"source": [source]}), Tags=[{"Key": TAG, "Value": lab.run}]
    )["RuleArn"]
    url = lab.queue("event", SqsManagedSseEnabled="true")
    arn, sqs = lab.queue_arn(url), lab.clients("sqs")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(_policy(arn, rule))})
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])

    def arrives() -> Any:
        # Sent again while rule and policy are not everywhere yet.
        events.put_events(Entries=[{"Source": source, "DetailType": "check", "Detail": "{}"}])
        return lab.received(url)

    body = json.loads(lab.until(arrives, "the event in the queue", 120)["Body"])
    if (body.get("source"), body.get("detail-type")) != (source, "check"):
        raise Falsified(f"the message is {body}")
    return f"fields {', '.join(sorted(body))}"
