"""A service that scales by its proxies: who reads their requests, with which permissions, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from contracts import names
from contracts.group import config as group_config
from contracts.group import scaling_settings
from contracts.registry import item as registry_item
from infra.settings import SettingsError, load_settings
from tests.iam import Request, allows
from tests.infra.declared import ROOT, Run, run, shipped, variant
from tests.infra.queues import EXISTING

HTTP = {"port": 8000, "concurrency": 8}
LOG = {"group": "/requests", "pattern": "GET", "secondsPerRequest": 1}
INSTANCES = "arn:aws:ec2:us-west-2:123456789012:instance/"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Run:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0] |= {"command": ["serve"], "http": HTTP, "scaling": {"source": "http"}}

    return run("known", variant(tmp_path_factory.mktemp("http"), change), "dev")


def test_the_queue_watcher_reads_the_proxies(chat: Run) -> None:
    variables = chat.the("Function", "queues")["environment"]["variables"]
    assert json.loads(variables[names.ENV_QUEUES]) == [["inference", "http", "inference", "", "", 0]]
    assert variables[names.ENV_INSTANCE_ARNS].endswith("instance/")


def test_it_may_read_the_items_of_instances_and_write_those_of_queues_only(chat: Run) -> None:
    policy = json.loads(chat.the("RolePolicy", "queues-function")["policy"])
    found = {one["Sid"]: one for one in policy["Statement"]}
    assert found["FindProxies"]["Action"] == ["ec2:DescribeInstances"]
    [table] = found["ReadProxies"]["Resource"]
    worker = registry_item.partition("inference", f"{INSTANCES}i-1")
    proxy = registry_item.partition(names.proxy_partition("inference"), f"{INSTANCES}i-2")
    for action, key, may in (
        ("BatchGetItem", worker, True),
        ("BatchGetItem", proxy, True),
        ("BatchGetItem", names.release_partition("inference"), False),
        ("PutItem", names.queue_partition("inference"), True),
        ("PutItem", proxy, False),
        ("UpdateItem", worker, False),
    ):
        asked = Request(f"dynamodb:{action}", table, {"dynamodb:LeadingKeys": [key]})
        assert allows([policy], asked) is may, (action, key)


@pytest.mark.parametrize("function", ["scaler", "health-checker"])
def test_scaler_and_health_checker_read_what_the_watcher_wrote(chat: Run, function: str) -> None:
    policy = json.loads(chat.the("RolePolicy", f"{function}-function")["policy"])
    [table] = next(one["Resource"] for one in policy["Statement"] if one["Sid"] == "ReadQueues")
    asked = Request("dynamodb:GetItem", table, {"dynamodb:LeadingKeys": [names.queue_partition("inference")]})
    assert allows([policy], asked)


def test_the_functions_know_the_concurrency_of_a_worker(chat: Run) -> None:
    config = group_config.parse(chat.the("Parameter", "inference-config")["insecureValue"])
    assert config.http_concurrency == 8
    scaling = scaling_settings.parse(chat.the("Parameter", "inference-scaling")["insecureValue"])
    assert scaling.log is None


def test_without_http_nothing_is_different() -> None:
    assert "gpu-spot-dev-queues" not in shipped("dev").of("Function")
    text = shipped("dev").the("Parameter", "inference-config")["insecureValue"]
    assert "httpConcurrency" not in text


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ({"scaling": {"source": "http"}}, "scaling: source 'http' without http, allowed: with it"),
        (
            {"http": HTTP, "queue": EXISTING, "scaling": {}},
            "scaling: source 'queue' with http, whose requests it lacks, allowed: 'http'",
        ),
        (
            {"http": HTTP, "scaling": {"source": "log", "log": LOG}},
            "scaling: source 'log' with http, whose requests it lacks, allowed: 'http'",
        ),
    ],
)
def test_a_source_without_the_requests_is_refused(service: dict[str, Any], says: str) -> None:
    raw = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
    raw["gpu-spot:services"][0] |= {"command": ["serve"], **service}
    with pytest.raises(SettingsError) as caught:
        load_settings(raw)
    assert says in str(caught.value)
