"""Messages: SQS queues, EventBridge rules and targets, SNS topics, brokers of Amazon MQ."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, generated_name, output_paths
from pulumi_on_moto.mapping.shapes import text

_QUEUE_NAMES: Final = {
    "maxMessageSize": "MaximumMessageSize",
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
}
"""Attributes of a queue whose name differs by more than its first letter."""


def _queue(draft: ResourceRequest) -> None:
    attributes = draft.clients("sqs").meta.service_model.shape_for("QueueAttributeName").enum
    names = {key: _QUEUE_NAMES.get(key, key[0].upper() + key[1:]) for key in draft.inputs}
    draft.put(Attributes={name: text(draft.take(key)) for key, name in names.items() if name in attributes})


def _queue_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {"arn": resource.arn("sqs", resource.params["QueueName"]), "url": resource.id}


def _rule(draft: ResourceRequest) -> None:
    if (enabled := draft.take("isEnabled")) is not None:
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
    draft.put(TopicArn=draft.need("arn"), AttributeName="Policy", AttributeValue=draft.need("policy"))


def _broker(draft: ResourceRequest) -> None:
    draft.inputs["engineType"] = str(draft.need("engineType")).upper()  # the provider accepts any case
    draft.inputs.setdefault("deploymentMode", "SINGLE_INSTANCE")
    for key in ("autoMinorVersionUpgrade", "publiclyAccessible"):
        draft.inputs.setdefault(key, False)  # as the provider sends it


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
        shape=_queue,
        outputs=_queue_outputs,
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Spec(
        "sqs.set_queue_attributes",
        "=QueueUrl",
        shape=lambda draft: draft.put(Attributes={"Policy": draft.need("policy")}),
    ),
    "aws:cloudwatch/eventRule:EventRule": Spec(
        "events.put_rule",
        "=Name",
        autoname="name",
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
        shape=_broker,
        outputs=_broker_outputs,
        no_effect={"applyImmediately": "says when changes come into effect, and nothing changes here"},
    ),
}
