"""Message brokers of Amazon MQ."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec


def _broker(draft: ResourceRequest) -> None:
    draft.inputs["engineType"] = str(draft.need("engineType")).upper()  # the provider accepts any case
    draft.inputs.setdefault("deploymentMode", "SINGLE_INSTANCE")
    # Defaults that the provider sends.
    draft.inputs.setdefault("autoMinorVersionUpgrade", False)
    draft.inputs.setdefault("publiclyAccessible", False)


def _outputs(resource: CreatedResource) -> dict[str, Any]:
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
    "aws:mq/broker:Broker": Spec(
        "mq.create_broker",
        "BrokerId",
        autoname="brokerName",
        tags="map",
        shape=_broker,
        outputs=_outputs,
        no_effect={"applyImmediately": "says when changes come into effect, and nothing changes here"},
    ),
}
