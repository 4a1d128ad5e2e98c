"""Queues that a stack file no longer has: refused while instances of their service run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from infra.components.queues import removed

SQS = "arn:aws:sqs:us-west-2:123456789012:gpu-spot-dev-ocr-queue-0123abc"
BROKER = "arn:aws:mq:us-west-2:123456789012:broker:gpu-spot-dev-ocr-mq-0123abc:b-1"


def service(name: str, kind: str, existing: object = None) -> Any:
    return SimpleNamespace(name=name, queue=SimpleNamespace(kind=kind, existing=existing))


def refusal(
    monkeypatch: pytest.MonkeyPatch,
    services: Collection[Any],
    arn: str,
    running: Mapping[str, int],
) -> str:
    """Return the refusal of a stack that has the queue of ``ocr``, else an empty text."""

    def resources(**_: Any) -> Any:
        tagged = SimpleNamespace(resource_arn=arn, tags={"gpu-spot:stack": "dev", "gpu-spot:group": "ocr"})
        return SimpleNamespace(resource_tag_mapping_lists=[tagged])

    def instances(scope: Any, filters: Mapping[str, list[str]], states: Collection[str]) -> Any:
        assert scope.stack == "dev"
        assert set(states) == {"pending", "running"}
        [group] = filters["tag:gpu-spot:group"]
        return SimpleNamespace(ids=["i-0"] * running.get(group, 0))

    tagging = SimpleNamespace(get_resources=resources, GetResourcesTagFilterArgs=SimpleNamespace)
    monkeypatch.setattr(removed, "aws", SimpleNamespace(resourcegroupstaggingapi=tagging))
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
    ],
)
def test_a_removed_queue_waits_for_its_instances(
    services: list[Any], arn: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(monkeypatch, services, arn, {"ocr": 2})
    assert said.startswith(f"gpu-spot:services must keep queue.kind: {kind} of 'ocr'")
    assert "capacity.target: 0" in said
    assert refusal(monkeypatch, services, arn, {"asr": 2}) == ""


@pytest.mark.parametrize(("kind", "arn"), [("sqs", SQS), ("rabbitmq", BROKER)])
def test_a_declared_queue_stays(kind: str, arn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, [service("ocr", kind)], arn, {"ocr": 2}) == ""
