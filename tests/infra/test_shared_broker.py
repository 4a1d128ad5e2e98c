"""Two services on one broker that the stack creates for the first: ``queue.existing.brokerOf``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import broker_users, names
from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, run, shipped, variant

ACCOUNT = "arn:aws:secretsmanager:us-west-2:123456789012"


def test_each_service_reads_the_url_of_its_own_user_on_the_only_broker() -> None:
    stack = shipped("ocr")
    [broker] = stack.of("Broker")
    variables = stack.the("Function", "broker-users")["environment"]["variables"]
    [managed] = broker_users.parse(variables[names.ENV_BROKERS])
    assert managed.administrator == broker
    assert {(user.name, user.queue, user.calls) for user in managed.users} == {
        ("ocr.workers", "ocr", ()),
        ("ocr.clients", "ocr", ()),
        ("pages.workers", "pages", ("ocr",)),
        ("pages.clients", "pages", ()),
        ("monitor", "", ()),
    }
    assert len(managed.users) == 5
    for service in ("ocr", "pages"):
        for side in ("primary", "fallback"):
            queue = stack.agent(f"{service}-{side}")["service"]["queue"]
            assert queue == {"secret": f"gpu-spot-ocr-{service}-mq-workers", "name": service}
        policy = json.loads(stack.the("RolePolicy", f"{service}-instance")["policy"])
        [granted] = [one for one in policy["Statement"] if "secretsmanager:GetSecretValue" in one["Action"]]
        assert granted["Resource"] == [f"{ACCOUNT}:secret:{queue['secret']}-??????"]


def test_the_order_of_the_entries_does_not_matter(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"].reverse()

    reversed_stack = run("known", variant(tmp_path, change, ROOT / "Pulumi.ocr.yaml"), "ocr")
    declared = {one["name"] for one in reversed_stack.declared}
    assert declared == {one["name"] for one in shipped("ocr").declared}


@pytest.mark.parametrize(
    ("service", "changes", "message"),
    [
        (1, {"existing": {"brokerOf": "moon"}}, "allowed: a service with a created broker: ocr"),
        (1, {"existing": {"brokerOf": "pages"}}, "allowed: a service with a created broker: ocr"),
        (1, {"name": "ocr"}, "queue 'ocr' of 'pages' is also that of 'ocr' on one broker"),
        (
            1,
            {"calls": ["moon"]},
            "queue.calls of 'pages' has 'moon', allowed: other services on its broker: ocr",
        ),
        (1, {"calls": ["pages"]}, "queue.calls of 'pages' has 'pages', allowed: other services"),
        (
            1,
            {"existing": {"secret": "a"}, "calls": ["ocr"]},
            "['ocr'] with existing.secret, allowed: on a broker",
        ),
        (1, {"existing": {}}, "existing.brokerOf: missing, allowed: secret or brokerOf"),
        (1, {"existing": {"brokerOf": "ocr", "secret": "a"}}, "'ocr' with secret, allowed: one of the two"),
        (
            1,
            {"existing": {"brokerOf": "ocr", "managementUrl": "https://b"}},
            "'https://b' with brokerOf, allowed: with secret",
        ),
    ],
)
def test_a_broker_that_cannot_be_shared_is_rejected(
    service: int, changes: dict[str, Any], message: str
) -> None:
    raw = yaml.safe_load((ROOT / "Pulumi.ocr.yaml").read_text("utf-8"))["config"]
    raw["gpu-spot:services"][service]["queue"] |= changes
    with pytest.raises(SettingsError) as refused:
        load_settings(raw)
    assert message in str(refused.value)
