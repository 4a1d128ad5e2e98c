"""Queues that a stack file no longer has: refused while workers of their service run."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from infra.components.queues import removed

SQS = "arn:aws:sqs:us-west-2:123456789012:gpu-spot-dev-ocr-queue-0123abc"
BROKER = "arn:aws:mq:us-west-2:123456789012:broker:gpu-spot-dev-ocr-mq-0123abc:b-1"


SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:gpu-spot-dev-ocr-mq-workers-0123abc"


def service(name: str, kind: str, existing: object = None, broker_of: str | None = None) -> Any:
    queue = SimpleNamespace(kind=kind, existing=existing, broker_of=broker_of)
    return SimpleNamespace(name=name, queue=queue)


def refusal(
    monkeypatch: pytest.MonkeyPatch,
    services: Collection[Any],
    arn: str,
    running: Mapping[str, int],
    hosts: Collection[str] = (),
) -> str:
    """Return the refusal of a stack that has the queue of ``ocr``, else an empty text."""
    name = arn.rpartition(":")[2].rpartition("-")[0]

    def resources(**_: Any) -> Any:
        tags = {"gpu-spot:stack": "dev", "gpu-spot:group": "ocr", "Name": name}
        return SimpleNamespace(resource_tag_mapping_lists=[SimpleNamespace(resource_arn=arn, tags=tags)])

    def parameters(path: str, opts: Any) -> Any:
        texts = {"config": json.dumps({"onPremisesHosts": dict.fromkeys(hosts, 1)}), "target": "0"}
        return SimpleNamespace(names=[f"{path}/{leaf}" for leaf in texts], values=[*texts.values()])

    def instances(scope: Any, filters: Mapping[str, list[str]], states: Collection[str]) -> Any:
        assert scope.stack == "dev"
        assert set(states) == {"pending", "running"}
        [group] = filters["tag:gpu-spot:group"]
        return SimpleNamespace(ids=["i-0"] * running.get(group, 0))

    tagging = SimpleNamespace(get_resources=resources, GetResourcesTagFilterArgs=SimpleNamespace)
    ssm = SimpleNamespace(get_parameters_by_path=parameters)
    monkeypatch.setattr(removed, "aws", SimpleNamespace(resourcegroupstaggingapi=tagging, ssm=ssm))
    monkeypatch.setattr(removed, "instances", instances)
    try:
        scope: Any = SimpleNamespace(stack="dev", invoke_options=None)
        removed.refuse_if_used(services, scope)
    except pulumi.RunError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("services", "arn", "kind"),
    [
        ([], SQS, "sqs"),
        ([], BROKER, "rabbitmq"),
        ([service("ocr", "rabbitmq")], SQS, "sqs"),
        ([service("ocr", "sqs", existing="another")], SQS, "sqs"),
        ([SimpleNamespace(name="ocr", queue=None), service("asr", "sqs")], SQS, "sqs"),
        ([], SECRET, "rabbitmq"),
        ([service("ocr", "rabbitmq", existing="another")], SECRET, "rabbitmq"),
        ([service("ocr", "rabbitmq", existing="another", broker_of="asr")], BROKER, "rabbitmq"),
    ],
)
def test_a_removed_queue_waits_for_its_workers(
    services: list[Any], arn: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(monkeypatch, services, arn, {"ocr": 2})
    assert said.startswith(f"gpu-spot:services must keep queue.kind: {kind} of 'ocr'")
    assert "capacity.target: 0" in said
    assert refusal(monkeypatch, services, arn, {"asr": 2}) == ""
    assert "on premises on rack-1:" in refusal(monkeypatch, services, arn, {}, ["rack-1"])


@pytest.mark.parametrize(("kind", "arn"), [("sqs", SQS), ("rabbitmq", BROKER), ("rabbitmq", SECRET)])
def test_a_declared_queue_stays(kind: str, arn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, [service("ocr", kind)], arn, {"ocr": 2}) == ""


def test_a_queue_on_the_broker_of_another_service_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = service("ocr", "rabbitmq", existing="another", broker_of="asr")
    assert refusal(monkeypatch, [shared], SECRET, {"ocr": 2}) == ""


def test_other_secrets_of_a_service_are_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, [], SECRET.replace("workers", "monitor"), {"ocr": 2}) == ""
