"""Events reach the deployed functions through the deployed rules, queue and event source mapping."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.market.replay.groups import SPOT_REFUSAL
from lambdas.core.model import Market, Side
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.running.server import command_line, serve
from tests.live.world import START, Running


def bodies(running: Running) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    url = running.deployment.outputs["queue"]
    while (
        found := running.clients("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages")
    ):
        messages.extend(json.loads(message["Body"]) for message in found)
    return messages


def put(running: Running, **detail: Any) -> None:
    body = json.dumps({"detail-type": "test", "detail": detail})
    running.clients("sqs").send_message(QueueUrl=running.deployment.outputs["queue"], MessageBody=body)


def dead(running: Running) -> int:
    url = running.deployment.resource("aws:sqs/queue:Queue", "dead").id
    names = ["ApproximateNumberOfMessages"]
    attributes = running.clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return int(attributes["Attributes"][names[0]])


def test_a_notice_has_the_shape_that_aws_gives_it(running: Running) -> None:
    instance = running.cloud.launch("inference", Side.PRIMARY, "g5.xlarge", "us-west-2a", Market.SPOT)
    bodies(running)
    running.cloud.notice(instance, START + 120)
    (event,) = bodies(running)
    assert event.pop("id")
    assert event == {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2023-11-14T22:13:20Z",
        "region": "us-west-2",
        "resources": [f"arn:aws:ec2:us-west-2a:instance/{instance}"],
        "detail": {"instance-id": instance, "instance-action": "terminate"},
    }


def test_only_matching_rules_deliver(running: Running) -> None:
    # The sample has no rule for state changes and recommendations, and one for scaling by name prefix.
    instance = running.cloud.launch("inference", Side.PRIMARY, "g5.xlarge", "us-west-2a", Market.SPOT)
    running.cloud.rebalance(instance)
    running.cloud.refuse("inference", Side.PRIMARY, SPOT_REFUSAL)
    running.cloud.kill([instance])
    assert [event["detail-type"] for event in bodies(running)] == [
        "EC2 Instance Launch Successful",
        "EC2 Instance Launch Unsuccessful",
        "EC2 Instance Terminate Successful",
    ]


def test_a_termination_by_a_client_is_announced(running: Running) -> None:
    instance = running.cloud.launch("inference", Side.PRIMARY, "g5.xlarge", "us-west-2a", Market.SPOT)
    bodies(running)
    running.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=True
    )
    (event,) = bodies(running)
    assert event["detail"]["EC2InstanceId"] == instance
    assert event["detail"]["AutoScalingGroupName"] == running.cloud.group("inference").primary


def test_the_schedule_fires_with_its_rule(running: Running) -> None:
    assert running.cloud.tick_schedule() == 1
    (event,) = bodies(running)
    assert (event["detail-type"], event["source"], event["detail"]) == ("Scheduled Event", "aws.events", {})
    assert event["resources"] == [
        running.deployment.resource("aws:cloudwatch/eventRule:EventRule", "minute").outputs["arn"]
    ]


def test_a_queue_that_does_not_admit_the_rule_is_told(running: Running) -> None:
    sqs, url = running.clients("sqs"), running.deployment.outputs["queue"]
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    try:
        with pytest.raises(LocalCloudError, match="does not let rule 'minute-"):
            running.cloud.tick_schedule()
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


def test_functions_run_from_the_archive_with_their_own_environment(running: Running) -> None:
    assert "GROUP" not in os.environ
    running.cloud.tick_schedule()
    (run,) = running.cloud.run_functions()
    assert (run.messages, run.failed, run.error) == (1, (), "")
    assert json.loads(run.log[0]) == {"seen": "Scheduled Event", "group": "inference"}
    assert "GROUP" not in os.environ
    assert not [name for name in sys.modules if name.split(".")[0] in ("handlers", "helper_of_sample")]
    function = running.deployment.functions.functions[run.function]
    assert function.module("helper_of_sample").SEEN == ["Scheduled Event"]
    assert bodies(running) == []


def test_a_module_of_the_same_name_outside_is_not_touched(running: Running, monkeypatch) -> None:
    outside = type(sys)("helper_of_sample")
    monkeypatch.setitem(sys.modules, "helper_of_sample", outside)
    running.cloud.tick_schedule()
    (run,) = running.cloud.run_functions()
    assert run.error == ""
    assert sys.modules["helper_of_sample"] is outside


def test_source_changed_after_the_deployment_is_not_seen(running: Running) -> None:
    function = running.deployment.resource("aws:lambda/function:Function", "controller")
    source = Path(function.inputs["code"].assets["handlers/echo.py"].path)
    text = source.read_text()
    try:
        source.write_text("raise RuntimeError('the source tree was imported')\n")
        running.cloud.tick_schedule()
        (run,) = running.cloud.run_functions()
    finally:
        source.write_text(text)
    assert run.error == ""


def test_batches_have_the_size_of_the_mapping(running: Running) -> None:
    for _ in range(7):
        put(running)
    assert [run.messages for run in running.cloud.run_functions()] == [3, 3, 1]


def test_a_partial_failure_keeps_only_the_failed_and_retries_them_until_dead(running: Running) -> None:
    put(running)
    put(running, fail=True)
    (run,) = running.cloud.run_functions()
    assert (run.messages, len(run.failed), run.error) == (2, 1, "")
    assert running.cloud.run_functions() == []  # invisible until its timeout of 60 s is over
    running.cloud.set_time(START + 61)
    (run,) = running.cloud.run_functions()
    assert (run.messages, len(run.failed)) == (1, 1)
    running.cloud.set_time(START + 122)  # received twice: maxReceiveCount is reached
    assert running.cloud.run_functions() == []
    assert dead(running) == 1


def test_an_exception_fails_the_batch_and_is_reported(running: Running) -> None:
    put(running)
    put(running, **{"break": True})
    (run,) = running.cloud.run_functions()
    assert (len(run.failed), run.error) == (2, "RuntimeError: told to break")
    assert len(run.log) == 2


LOOK = """
import boto3, sys
client = boto3.client("autoscaling", endpoint_url=sys.argv[1], region_name="us-west-2",
                      aws_access_key_id="local", aws_secret_access_key="local")
print(sum(len(g["Instances"]) for g in client.describe_auto_scaling_groups()["AutoScalingGroups"]))
"""


def test_another_process_can_look_around(running: Running) -> None:
    running.cloud.launch("inference", Side.PRIMARY, "g5.xlarge", "us-west-2a", Market.SPOT)
    with serve() as endpoint:
        done = subprocess.run(
            [sys.executable, "-c", LOOK, endpoint], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.stdout.strip() == "1", done.stderr
    assert endpoint in command_line(endpoint, "us-west-2")
