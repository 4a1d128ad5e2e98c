"""Messages: SQS queues, EventBridge rules and targets, SNS topics, brokers of Amazon MQ."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.base import (
    CreatedResource,
    ResourceRequest,
    Spec,
    generated_name,
    json_text,
    output_paths,
)
from pulumi_on_moto.mapping.shapes import text

_QUEUE_ATTRIBUTES: Final = {
    "contentBasedDeduplication": "ContentBasedDeduplication",
    "deduplicationScope": "DeduplicationScope",
    "delaySeconds": "DelaySeconds",
    "fifoQueue": "FifoQueue",
    "fifoThroughputLimit": "FifoThroughputLimit",
    "kmsDataKeyReusePeriodSeconds": "KmsDataKeyReusePeriodSeconds",
    "kmsMasterKeyId": "KmsMasterKeyId",
    "maxMessageSize": "MaximumMessageSize",
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "sqsManagedSseEnabled": "SqsManagedSseEnabled",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
}
_QUEUE_DOCUMENTS: Final = {
    "policy": "Policy",
    "redrivePolicy": "RedrivePolicy",
    "redriveAllowPolicy": "RedriveAllowPolicy",
}


def _queue(draft: ResourceRequest) -> None:
    attributes: dict[str, Any] = {}
    for key, name in _QUEUE_ATTRIBUTES.items():
        value = draft.take(key)
        if value is not None:
            attributes[name] = text(value)
    for key, name in _QUEUE_DOCUMENTS.items():
        value = draft.take(key)
        if value is not None:
            attributes[name] = json_text(value)
    draft.put(Attributes=attributes)


def _queue_policy(draft: ResourceRequest) -> None:
    draft.put(Attributes={"Policy": json_text(draft.need("policy"))})


def _queue_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {"arn": resource.arn("sqs", resource.params["QueueName"]), "url": resource.id}


def _rule(draft: ResourceRequest) -> None:
    pattern = draft.take("eventPattern")
    enabled = draft.take("isEnabled")
    draft.put(EventPattern=json_text(pattern))
    if enabled is not None:
        draft.put(State="ENABLED" if enabled else "DISABLED")


_TARGET_RENAMES: Final = {"targetId": "id", "sqsTarget": "sqsParameters", "inputPaths": "inputPathsMap"}


def _target(draft: ResourceRequest) -> None:
    rule, bus = draft.need("rule"), draft.take("eventBusName")
    transformer = draft.inputs.get("inputTransformer")
    if transformer:
        draft.inputs["inputTransformer"] = {_TARGET_RENAMES.get(k, k): v for k, v in transformer.items()}
    target = {_TARGET_RENAMES.get(key, key): value for key, value in draft.inputs.items()}
    target.setdefault("id", generated_name(draft))
    shaped = draft.matched("events", "PutTargets", target, "eventTarget", "Targets", "[]")
    draft.inputs.clear()
    draft.put(Rule=rule, EventBusName=bus, Targets=[shaped])


def _topic_document(draft: ResourceRequest) -> None:
    draft.put(
        TopicArn=draft.need("arn"), AttributeName="Policy", AttributeValue=json_text(draft.need("policy"))
    )


def _broker(draft: ResourceRequest) -> None:
    draft.inputs["engineType"] = str(draft.need("engineType")).upper()  # the provider accepts any case
    draft.inputs.setdefault("deploymentMode", "SINGLE_INSTANCE")
    # Defaults that the provider sends.
    draft.inputs.setdefault("autoMinorVersionUpgrade", False)
    draft.inputs.setdefault("publiclyAccessible", False)


def _broker_outputs(resource: CreatedResource) -> dict[str, Any]:
    broker = resource.clients("mq").describe_broker(BrokerId=resource.id)
    outputs: dict[str, Any] = {
        "arn": resource.find("BrokerArn"),
        "instances": [
            {"consoleUrl": instance["ConsoleURL"], "endpoints": instance["Endpoints"]}
            for instance in broker["BrokerInstances"]
        ],
    }
    if broker["EngineType"] == "RABBITMQ":
        # AWS returns no users of RabbitMQ, so the provider shows none.
        outputs["users"] = []
    return outputs


SPECS: dict[str, Spec] = {
    "aws:sqs/queue:Queue": Spec(
        "sqs.create_queue",
        "QueueUrl",
        rename={"name": "QueueName"},
        autoname="name",
        tags="map",
        shape=_queue,
        outputs=_queue_outputs,
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Spec("sqs.set_queue_attributes", "=QueueUrl", shape=_queue_policy),
    "aws:cloudwatch/eventRule:EventRule": Spec(
        "events.put_rule",
        "=Name",
        autoname="name",
        tags="list",
        shape=_rule,
        outputs=output_paths(arn="RuleArn"),
        no_effect={"forceDestroy": "nothing is ever deleted here"},
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Spec(
        "events.put_targets",
        lambda resource: f"{resource.params['Rule']}-{resource.params['Targets'][0]['Id']}",
        shape=_target,
        outputs=lambda resource: {"targetId": resource.params["Targets"][0]["Id"]},
    ),
    "aws:scheduler/schedule:Schedule": Spec(
        "scheduler.create_schedule",
        lambda resource: f"{resource.params.get('GroupName', 'default')}/{resource.params['Name']}",
        autoname="name",
        outputs=output_paths(arn="ScheduleArn"),
    ),
    "aws:sns/topic:Topic": Spec(
        "sns.create_topic",
        "TopicArn",
        autoname="name",
        tags="list",
        shape=lambda draft: draft.put(
            Attributes={
                name: text(draft.take(key))
                for key, name in (("displayName", "DisplayName"), ("kmsMasterKeyId", "KmsMasterKeyId"))
                if draft.inputs.get(key) is not None
            }
        ),
        outputs=output_paths(arn="TopicArn"),
    ),
    "aws:sns/topicSubscription:TopicSubscription": Spec(
        "sns.subscribe",
        "SubscriptionArn",
        rename={"topic": "TopicArn"},
        outputs=output_paths(arn="SubscriptionArn"),
        no_effect={"endpointAutoConfirms": "subscriptions are confirmed at once"},
    ),
    "aws:sns/topicPolicy:TopicPolicy": Spec("sns.set_topic_attributes", "=TopicArn", shape=_topic_document),
    "aws:mq/broker:Broker": Spec(
        "mq.create_broker",
        "BrokerId",
        autoname="brokerName",
        tags="map",
        shape=_broker,
        outputs=_broker_outputs,
        no_effect={"applyImmediately": "says when changes come into effect, and nothing changes here"},
    ),
}
