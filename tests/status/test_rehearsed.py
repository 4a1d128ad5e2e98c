"""``gpu-spot status`` against a rehearsal, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from gpu_spot import cli
from gpu_spot.status import command as status
from gpu_spot.status import permissions
from market.rules import TICK_SECONDS
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.running.functions import Invocation
from rehearsal.commands import deploy
from tests.apart import apart
from tests.docs.keys import documented
from tests.e2e.world import World, living, load, small
from tests.iam import Request, allowed_actions, allows

pytestmark = pytest.mark.soak

REGION = "us-west-2"
STRANGER = "i-00000000000000000"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return apart(_collect)


def test_a_stack_in_a_market_is_shown(results: dict[str, Any]) -> None:
    first, ringing = json.loads(results["json"]), json.loads(results["ringing"])
    assert first.keys() == documented("status")

    [group] = first["groups"]
    live = group["instances"]
    assert (first["is_well"], results["code"], group["group"]) == (True, 0, "inference")
    assert group["ready"] + group["booting"] + group["draining"] == len(live) > 0
    assert group["ready"] == sum(one["count"] for one in group["workers"] if one["phase"] == "ready")
    assert group["missing"] == max(0, group["target"] - group["ready"])
    assert {one["version"] for one in group["workers"]} == {"rehearsed"}
    spot = [one for one in live if one["market"] == "spot"]
    requests = {one["code"]: one for one in group["spot_requests"]}
    assert requests["fulfilled"] == {
        "state": "active",
        "code": "fulfilled",
        "class": "not a failure",
        "count": len(spot) - requests.get("instance-terminated-no-capacity", {"count": 0})["count"],
        "updated": max(one["launched"] for one in spot),
    }
    assert sum(image["count"] for image in group["images"]) == len(live)
    assert 0 < first["cost_usd_hour"] < first["on_demand_usd_hour"]
    assert first["decisions"]
    assert all(one["actions"] and one["reason"] for one in first["decisions"])
    assert [one["at"] for one in first["decisions"]] == sorted(
        (one["at"] for one in first["decisions"]), reverse=True
    )

    assert (ringing["is_well"], results["ringing code"]) == (False, 1)
    [alarm] = ringing["alarms"]
    assert alarm.keys() == {"name", "since", "says"}
    assert alarm["name"] == results["alarm"]


def test_requests_that_may_not_be_read_are_not_shown_as_none(results: dict[str, Any]) -> None:
    [group] = json.loads(results["denied json"])["groups"]
    assert group["spot_requests"] is None
    [warning] = group["unread"]
    assert warning.startswith("Spot requests not read: An error occurred (UnauthorizedOperation)")
    assert re.search(r"inference +unknown +not readable", results["denied"])
    assert "Spot requests not read: An error occurred" in " ".join(results["denied"].split())


def test_interrupted_requests_are_counted_by_their_profile(results: dict[str, Any]) -> None:
    [group] = json.loads(results["interrupted"])["groups"]
    requests = {one["code"]: one for one in group["spot_requests"]}
    before = {one["code"]: one for one in json.loads(results["json"])["groups"][0]["spot_requests"]}
    lost = requests["instance-terminated-no-capacity"]
    assert (lost["state"], lost["class"]) == ("closed", "capacity")
    assert lost["count"] + requests.get("fulfilled", {"count": 0})["count"] == sum(
        one["count"] for one in before.values()
    )


def test_reports_of_unknown_writers_are_shown_and_not_counted(results: dict[str, Any]) -> None:
    [before], [after] = (json.loads(results[name])["groups"] for name in ("json", "strangers"))
    assert before["unread"] == []
    [warning] = after["unread"]
    assert warning.startswith("reports not believed, of unknown instances, hosts or slots: inference#arn:")
    assert warning.endswith("/i-00000000000000000, inference@on-premises#gpu-9")
    assert after["workers"] == before["workers"]


def test_deploy_prints_its_resources_as_json(results: dict[str, Any]) -> None:
    deployed = json.loads(results["deployed"])
    assert {"type": "aws:autoscaling/group:Group", "name": "inference-primary"} in deployed["resources"]
    assert deployed["outputs"].keys() >= {"queueUrl", "memoryTable", "groups"}
    assert all(one["rule"] and one["words"] for one in deployed["violations"])


def test_a_terminal_gets_colours_and_a_pipe_gets_plain_words(results: dict[str, Any]) -> None:
    assert "\x1b[" in results["terminal"]
    assert "\x1b" not in results["pipe"]
    plain = " ".join(results["pipe"].split())
    assert plain.startswith(f"dev in {REGION} needs attention")
    assert plain.index("ALARM ") < plain.index("groups")
    assert "docs/runbook.md" in plain
    assert re.search(r"\$\d+\.\d\d/h \(\d+ % of On-Demand\)", plain)
    assert re.search(r"\d+ AWS API calls", plain)
    assert results["looks"] == 3


def test_the_policy_allows_exactly_the_requests(results: dict[str, Any]) -> None:
    document = permissions.policy("dev", REGION)
    asked = {request["action"] for request in results["requests"]}
    for request in results["requests"]:
        assert allows([document], Request(request["action"], request["resource"])), request
    of_fleets = {one for one in allowed_actions([document]) if "SpotFleet" in one}
    other_calls = {"sts:GetCallerIdentity"}  # not recorded: it needs no permission
    assert allowed_actions([document]) - of_fleets - other_calls == asked
    other = {"dynamodb:GetItem": "table/gpu-spot-prod-memory-0a1b2c3"}
    for action, resource in other.items():
        arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:{resource}"
        assert not allows([document], Request(action, arn))


def _collect() -> dict[str, Any]:
    """Simulate six hours of market, then run the command in all ways."""
    with living(load("dev", small(4))) as world:
        fleet = world.fleet()
        _store_controller_logs(world)
        replay = world.replay(fleet, 6)
        replay.run(300)
        world.cloud.set_time(replay.start + 300 * TICK_SECONDS)
        world.cloud.heartbeat(world.cloud.alive("inference"))  # calm ticks are not played
        results: dict[str, Any] = {"deployed": deploy.as_json(world.deployment, [])}
        noted = _requests(world)
        results["json"], results["code"] = _shown(world, "--json")
        _report_as_strangers(world)
        results["strangers"], _ = _shown(world, "--json")
        _report_as_strangers(world, age=120.0)
        results["alarm"] = _activate_alarm(world)
        results["ringing"], results["ringing code"] = _shown(world, "--json")
        results["pipe"], _ = _shown(world)
        results["terminal"], results["looks"] = _watched(world)
        with _denied(world.clients("ec2"), "DescribeSpotInstanceRequests"):
            results["denied json"], _ = _shown(world, "--json")
            results["denied"], _ = _shown(world)
        world.cloud.kill(sorted(_spot_instances(results["json"])))
        results["interrupted"], _ = _shown(world, "--json")
        ours = ("cloudwatch:PutMetricAlarm", "cloudwatch:SetAlarmState", "dynamodb:PutItem")
        results["requests"] = [one for one in noted if one["action"] not in ours]
        return results


def _report_as_strangers(world: World, age: float = 0.0) -> None:
    """Write items of an instance and of an on-premises host that the group does not have."""
    now = world.clock.now - age
    for partition, writer in (
        (registry_item.partition("inference", f"{world.cloud.registry.instance_arns}{STRANGER}"), STRANGER),
        (registry_item.partition("inference@on-premises", "gpu-9"), "gpu-9"),
    ):
        item = registry_item.dump(Worker(partition, writer, 0, now - 600, now, "ready"))
        world.clients("dynamodb").put_item(TableName=world.cloud.registry.table, Item=item)


@contextmanager
def _denied(client: Any, action: str) -> Iterator[None]:
    def deny(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "not authorized"}}, action)

    client.meta.events.register(f"before-call.ec2.{action}", deny, unique_id="deny")
    try:
        yield
    finally:
        client.meta.events.unregister(f"before-call.ec2.{action}", unique_id="deny")


def _spot_instances(document: str) -> set[str]:
    [group] = json.loads(document)["groups"]
    return {one["instance"] for one in group["instances"] if one["market"] == "spot"}


def _shown(world: World, *words: str, wait: Any = None) -> tuple[str, int]:
    args = cli.parser("status").parse_args(["status", *words])
    with redirect_stdout(io.StringIO()) as output:
        code = status.act(args, world.clients, world.config, wait, lambda: world.clock.now)
    return output.getvalue(), code


def _watched(world: World) -> tuple[str, int]:
    written, continue_polling = io.StringIO(), iter((True, True, False))
    polls: list[int] = []

    def wait() -> bool:
        polls.append(1)
        return next(continue_polling)

    terminal = Console(file=written, force_terminal=True, width=140, height=60)
    console_class, status.Console = status.Console, lambda **_: terminal  # type: ignore[misc, assignment]
    try:
        _shown(world, "--watch", wait=wait)
    finally:
        status.Console = console_class  # type: ignore[misc]
    return written.getvalue(), len(polls)


def _activate_alarm(world: World) -> str:
    """Set one of the stack's alarms to ALARM, and one of a stack with the same name prefix."""
    cloudwatch = world.clients("cloudwatch")
    [name] = [
        one["AlarmName"]
        for page in cloudwatch.get_paginator("describe_alarms").paginate()
        for one in page["MetricAlarms"]
        if "inference-shortage" in one["AlarmName"]
    ]
    cloudwatch.put_metric_alarm(
        AlarmName="gpu-spot-dev-2-controller-errors",
        ComparisonOperator="GreaterThanThreshold",
        EvaluationPeriods=1,
        MetricName="Errors",
        Namespace="AWS/Lambda",
        Period=60,
        Statistic="Sum",
        Threshold=1,
        Tags=[{"Key": "gpu-spot:stack", "Value": "dev-2"}],
    )
    for one in (name, "gpu-spot-dev-2-controller-errors"):
        cloudwatch.set_alarm_state(AlarmName=one, StateValue="ALARM", StateReason="a test")
    return str(name)


def _store_controller_logs(world: World) -> None:
    """Write the controller's log to the log group that the program declares, as Lambda does."""
    logs, functions = world.clients("logs"), world.deployment.functions
    [group] = [
        one["logGroupName"]
        for one in logs.describe_log_groups(logGroupNamePrefix="gpu-spot-dev-controller")["logGroups"]
    ]
    logs.create_log_stream(logGroupName=group, logStreamName="one")
    run = functions.run

    def run_and_store() -> list[Invocation]:
        found = list(run())
        lines = [line for one in found for line in one.log]
        at = round(1000 * world.clock.now)
        events = [{"timestamp": at, "message": line} for line in lines if line.startswith("{")]
        if events:
            logs.put_log_events(logGroupName=group, logStreamName="one", logEvents=events)
        return found

    functions.run = run_and_store  # type: ignore[method-assign]


def _requests(world: World) -> list[dict[str, str]]:
    """Record the AWS requests from now on, as IAM authorizes them."""
    found: list[dict[str, str]] = []

    def note(model: Any, params: Any, **_: Any) -> None:
        service, body = model.service_model.signing_name, params.get("body") or {}
        service = {"monitoring": "cloudwatch"}.get(service, service)
        found.append({"action": f"{service}:{model.name}", "resource": _resource(service, model.name, body)})

    for service in ("autoscaling", "cloudwatch", "dynamodb", "ec2", "logs", "ssm"):
        world.clients(service).meta.events.register("before-call", note, unique_id="note")
    return found


def _resource(service: str, action: str, body: Any) -> str:
    given = json.loads(body) if isinstance(body, str | bytes) and body else body
    place = f"{REGION}:{ACCOUNT}"
    match service, action:
        case "dynamodb", "BatchGetItem":
            return f"arn:aws:dynamodb:{place}:table/{next(iter(given['RequestItems']))}"
        case "dynamodb", "BatchGetItem":
            return f"arn:aws:dynamodb:{place}:table/{next(iter(given['RequestItems']))}"
        case "dynamodb", "GetItem" | "Scan":
            return f"arn:aws:dynamodb:{place}:table/{given['TableName']}"
        case "ssm", _:
            return f"arn:aws:ssm:{place}:parameter{given['Path']}"
        case "cloudwatch", _:
            return f"arn:aws:cloudwatch:{place}:alarm:any"
        case "logs", "FilterLogEvents":
            return f"arn:aws:logs:{place}:log-group:{given['logGroupName']}"
        case "logs", _:
            return f"arn:aws:logs:{place}:log-group:any"
    return "*"
