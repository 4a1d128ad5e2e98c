"""A service's SQS queue: queue and dead-letter queue, permissions, the agent's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.declared.stackfile import load
from infra.settings import SettingsError, load_settings
from pulumi_on_moto import changes, deploy, sandbox
from spot_work.sqs import reply_queue
from tests.apart import apart
from tests.infra.declared import ROOT, Run, heading
from tests.infra.test_queue import KEY
from tests.infra.test_statements import OF_SQS
from tests.infra.training import queue_stack

OWN = {"kind": "sqs", "maxReceiveCount": 7, "visibilityTimeout": 90}
EXISTING = {"kind": "sqs", "existing": {"queue": "ocr", "deadLetters": "ocr-lost"}}
ARN = "arn:aws:sqs:us-west-2:123456789012:"


@pytest.fixture(scope="module")
def own() -> Run:
    """Of prod, which is protected and has endpoints in place of NAT, with a key."""
    return queue_stack(OWN, "prod", kmsKeyArn=KEY)


@pytest.fixture(scope="module")
def existing() -> Run:
    return queue_stack(EXISTING)


def granted(policy: str) -> dict[str, dict[str, Any]]:
    return {one["Sid"]: one for one in json.loads(policy)["Statement"]}


def test_the_queue_has_dead_letters_and_is_encrypted_and_protected(own: Run) -> None:
    queue, dead = own.the("Queue", "inference-queue"), own.the("Queue", "inference-dead")
    redrive = json.loads(queue["redrivePolicy"])
    assert redrive["maxReceiveCount"] == 7
    assert redrive["deadLetterTargetArn"].endswith("inference-dead")
    assert (queue["visibilityTimeoutSeconds"], queue["receiveWaitTimeSeconds"]) == (90, 20)
    assert (queue["messageRetentionSeconds"], dead["messageRetentionSeconds"]) == (4 * 86_400, 14 * 86_400)
    assert queue["kmsMasterKeyId"] == dead["kmsMasterKeyId"] == KEY
    ours = [one for one in own.declared if one["type"].endswith(":Queue") and "inference" in one["name"]]
    assert [one["protect"] for one in ours] == [True, True]


def test_requests_without_tls_are_denied(own: Run) -> None:
    for name in ("queue", "dead"):
        [deny] = granted(own.the("QueuePolicy", f"inference-{name}")["policy"]).values()
        assert (deny["Effect"], deny["Principal"], deny["Action"]) == ("Deny", "*", ["sqs:*"])
        assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_permissions_of_workers(own: Run, existing: Run) -> None:
    statements = granted(existing.the("RolePolicy", "inference-instance")["policy"])
    assert statements["WorkOnQueue"]["Resource"] == [f"{ARN}ocr"]
    assert statements["BuryRequests"]["Resource"] == [f"{ARN}ocr-lost"]
    assert statements["SendAnswers"]["Resource"] == [f"{ARN}ocr-answers-*"]
    actions = {action for one in statements.values() for action in one["Action"] if "sqs:" in action}
    assert "sqs:CreateQueue" not in actions
    assert not [one for one in statements.values() if "secretsmanager:GetSecretValue" in one["Action"]]
    use = granted(own.the("RolePolicy", "inference-instance")["policy"])["UseKey"]
    assert "sqs.us-west-2.*" in use["Condition"]["StringLike"]["kms:ViaService"]


def test_permissions_of_callers(own: Run, existing: Run) -> None:
    statements = granted(existing.the("Policy", "inference-callers")["policy"])
    assert statements["SendRequests"]["Resource"] == [f"{ARN}ocr"]
    assert statements["ReadAnswers"]["Resource"] == [f"{ARN}ocr-answers-*"]
    assert "UseKey" in granted(own.the("Policy", "inference-callers")["policy"])


def test_the_agents_configuration_has_the_queue(existing: Run) -> None:
    for side in ("primary", "fallback"):
        queue = existing.agent(f"inference-{side}")["service"]["queue"]
        assert queue == {"name": "ocr", "url": "sqs://us-west-2/123456789012"}
    assert existing.exports["queues"]["inference"]["url"] == "sqs://us-west-2/123456789012"


def test_existing_queues_are_not_created(existing: Run) -> None:
    assert not [name for name in existing.of("Queue") if "inference" in name]


def test_without_a_way_out_there_is_an_endpoint_for_sqs_and_none_for_secrets(own: Run) -> None:
    endpoints = own.of("VpcEndpoint")
    assert "endpoint-sqs" in endpoints
    assert "endpoint-secretsmanager" not in endpoints


def test_permissions_of_the_watcher(existing: Run) -> None:
    statements = granted(existing.the("RolePolicy", "queues-function")["policy"])
    assert statements["SeeQueues"]["Resource"] == [f"{ARN}ocr"]
    seen = {*statements["SeeQueues"]["Action"], *statements["SeeTheirMetrics"]["Action"]}
    assert seen == OF_SQS  # what the reader calls
    assert "ReadQueueSecrets" not in statements


def test_dead_letters_have_an_alarm_and_every_alarm_a_heading_in_the_runbook(own: Run) -> None:
    alarms = {name: alarm for name, alarm in own.alarms().items() if "-queue-" in name}
    dead = alarms["inference-queue-dead-letters"]
    assert (dead["metricName"], dead["threshold"]) == ("ApproximateNumberOfMessagesVisible", 1)
    assert "inference-queue-length" not in alarms
    for name in alarms:
        assert heading(name) == f"<group>{name.partition('inference')[2]}"


def test_containers_have_the_instances_role_and_on_premises_is_rejected() -> None:
    capacity = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge"]}
    service = {"name": "ocr", "image": f"acme/ocr@sha256:{64 * chr(48)}", "capacity": capacity, "queue": OWN}
    config = {
        "aws:region": "us-west-2",
        "gpu-spot:network": {"cidr": "10.0.0.0/16", "zones": ["us-west-2a"]},
        "gpu-spot:services": [service],
    }
    assert load_settings(config).services[0].image == service["image"]
    service["onPremises"] = {"hosts": [{"name": "gpu-1", "gpus": 1}]}
    with pytest.raises(SettingsError, match="needs a queue of RabbitMQ, or a command without an image"):
        load_settings(config)


def _rehearsed(folder: str) -> dict[str, Any]:
    """Deploy, work and ask by what the stack says, and run again."""
    config = load(Path(folder), "dev", {"services[0].command": ["serve"], "services[0].queue": OWN})
    with sandbox(config.region) as clients:
        deployment = deploy(clients, config)
        queue = deployment.outputs["queues"]["inference"]
        sqs = clients("sqs")
        url = sqs.get_queue_url(QueueName=queue["queue"])["QueueUrl"]
        given = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return {"queue": queue, "given": given, "after": changes(deployment, config)}


def test_deployed_queues_have_the_properties_that_spot_work_needs() -> None:
    seen = apart(_rehearsed, str(ROOT))
    assert len(seen["queue"]["queue"]) <= 55
    assert seen["given"]["VisibilityTimeout"] == "90"
    assert json.loads(seen["given"]["RedrivePolicy"])["deadLetterTargetArn"].endswith(
        seen["queue"]["deadLetters"]
    )
    assert seen["given"]["SqsManagedSseEnabled"] == "true"
    assert seen["after"] == ()


URL = "https://sqs.us-west-2.amazonaws.com/123456789012/"


@pytest.mark.parametrize("address", ["ocr", f"{URL}ocr", f"{ARN}ocr", "o" * 80])
def test_an_existing_queue_is_named_by_name_url_or_arn(address: str) -> None:
    queue = {"kind": "sqs", "existing": {"queue": address, "deadLetters": f"{ARN}ocr-lost"}}
    found = queue_stack(queue)
    name = address.rpartition("/")[2].rpartition(":")[2]
    statements = found.statements("inference-instance")
    assert statements["WorkOnQueue"]["Resource"] == [f"{ARN}{name}"]
    assert statements["SendAnswers"]["Resource"] == [f"{ARN}{reply_queue.prefix(name)}*"]
    assert found.agent("inference-primary")["service"]["queue"]["name"] == name


def test_a_queue_of_another_account_is_refused() -> None:
    other = ARN.replace("123456789012", "210987654321")
    queue = {"kind": "sqs", "existing": {"queue": f"{other}ocr", "deadLetters": f"{other}ocr-lost"}}
    with pytest.raises(
        Exception, match="must be in account 123456789012, that of the stack; ocr is in 210987654321"
    ):
        queue_stack(queue)
