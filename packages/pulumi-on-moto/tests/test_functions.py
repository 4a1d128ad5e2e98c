"""Functions run from the deployed archives: called, woken by rules, fed by queues."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulumi_on_moto import Deployment, LocalCloudError, deliver, invoke, tick
from pulumi_on_moto.running.clock import SimulatedTime
from pulumi_on_moto.running.functions import Call
from pulumi_on_moto.running.server import command_line, serve

FUNCTION = "aws:lambda/function:Function"
RULE = "aws:cloudwatch/eventRule:EventRule"
CALLED = {"source": "sample", "detail-type": "call", "detail": {"x": 1}}


def put(deployment: Deployment, **detail: Any) -> None:
    body = json.dumps({"detail-type": "test", "detail": detail})
    deployment.clients("sqs").send_message(QueueUrl=deployment.outputs["queue"], MessageBody=body)


def dead(deployment: Deployment) -> int:
    url = deployment.resource("aws:sqs/queue:Queue", "dead").id
    names = ["ApproximateNumberOfMessages"]
    attributes = deployment.clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return int(attributes["Attributes"][names[0]])


def test_a_scheduled_event_names_its_rule(deployment: Deployment) -> None:
    assert deployment.bus.tick(0) == 1
    url = deployment.outputs["queue"]
    [message] = deployment.clients("sqs").receive_message(QueueUrl=url)["Messages"]
    event = json.loads(message["Body"])
    assert (event["detail-type"], event["source"], event["detail"]) == ("Scheduled Event", "aws.events", {})
    assert event["resources"] == [deployment.resource(RULE, "minute").outputs["arn"]]


def test_a_queue_that_does_not_admit_the_rule_is_reported(deployment: Deployment) -> None:
    sqs, url = deployment.clients("sqs"), deployment.outputs["queue"]
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    try:
        with pytest.raises(LocalCloudError, match="does not let rule 'minute-"):
            tick(deployment)
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


def test_a_rule_calls_a_function_that_admits_it(deployment: Deployment) -> None:
    [run] = deliver(deployment, CALLED)
    name = deployment.resource(FUNCTION, "echo").id
    assert (run.function, run.error, run.log) == (name, "", ("called",))
    assert run.result["detail"] == {"x": 1}
    assert run.result["account"] == "123456789012"


def test_a_function_that_does_not_admit_the_rule_is_reported(deployment: Deployment) -> None:
    service, name = deployment.clients("lambda"), deployment.resource(FUNCTION, "echo").id
    [statement] = json.loads(service.get_policy(FunctionName=name)["Policy"])["Statement"]
    service.remove_permission(FunctionName=name, StatementId=statement["Sid"])
    grant = {"Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"}
    other = {"SourceArn": "arn:aws:events:us-west-2:123456789012:rule/other"}
    service.add_permission(FunctionName=name, StatementId="other", **grant, **other)
    try:
        with pytest.raises(LocalCloudError, match=r"its policy does not let rule 'call-.* invoke it"):
            deliver(deployment, CALLED)
    finally:
        service.remove_permission(FunctionName=name, StatementId="other")
        source = {"SourceArn": statement["Condition"]["ArnLike"]["AWS:SourceArn"]}
        service.add_permission(FunctionName=name, StatementId=statement["Sid"], **grant, **source)


def test_an_event_without_a_needed_field_is_refused(deployment: Deployment) -> None:
    with pytest.raises(LocalCloudError, match="event: 'detail' is missing"):
        deliver(deployment, {"source": "sample", "detail-type": "call"})


def test_a_call_returns_result_log_and_error(deployment: Deployment) -> None:
    run = invoke(deployment, "echo", {"x": (1, 2)})
    assert (run.result, run.log, run.error) == ({"x": [1, 2]}, ("called",), "")
    assert invoke(deployment, "echo", {"raise": "no"}).error == "ValueError: no"
    assert "Runtime.MarshalError" in invoke(deployment, "echo", {"return": "set"}).error
    with pytest.raises(LocalCloudError, match="has no aws:lambda/function:Function named 'none'"):
        invoke(deployment, "none")


def test_clients_and_topics_call_functions_without_docker(deployment: Deployment) -> None:
    function = deployment.resource(FUNCTION, "echo")
    reply = deployment.clients("lambda").invoke(FunctionName=function.id, Payload=b'{"x": 1}')
    assert json.loads(reply["Payload"].read()) == {"x": 1}
    reply = deployment.clients("lambda").invoke(FunctionName=function.id, Payload=b'{"raise": "no"}')
    assert json.loads(reply["Payload"].read()) == {"errorType": "ValueError", "errorMessage": "no"}
    assert reply["FunctionError"]
    sns, topic = deployment.clients("sns"), deployment.resource("aws:sns/topic:Topic", "people").id
    sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=function.outputs["arn"])
    sns.publish(TopicArn=topic, Message="hello")


def test_an_event_that_a_function_puts_wakes_another(deployment: Deployment) -> None:
    first, second = deliver(deployment, {**CALLED, "detail": {"put": "call"}})
    assert first.error == second.error == ""
    assert (second.result["source"], second.result["detail"]) == ("echo", {})
    assert second.result["time"].endswith("Z")


def test_functions_run_from_the_archive_with_their_own_environment(deployment: Deployment) -> None:
    assert "GROUP" not in os.environ
    [run] = tick(deployment)
    assert (run.messages, run.failed, run.error) == (1, (), "")
    assert json.loads(run.log[0]) == {"seen": "Scheduled Event", "group": "inference"}
    assert "GROUP" not in os.environ
    assert not [name for name in sys.modules if name.split(".")[0] in ("handlers", "helper_of_sample")]
    function = deployment.functions.functions[run.function]
    assert function.module("helper_of_sample").SEEN == ["Scheduled Event"]
    assert tick(deployment)[0].error == ""
    assert function.module("helper_of_sample").SEEN == ["Scheduled Event"] * 2
    deployment.functions.cool()
    tick(deployment)
    assert function.module("helper_of_sample").SEEN == ["Scheduled Event"]


def test_a_module_of_the_same_name_outside_is_not_touched(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = type(sys)("helper_of_sample")
    monkeypatch.setitem(sys.modules, "helper_of_sample", outside)
    [run] = tick(deployment)
    assert run.error == ""
    assert sys.modules["helper_of_sample"] is outside


def test_source_changed_after_the_deployment_is_not_seen(deployment: Deployment) -> None:
    function = deployment.resource(FUNCTION, "controller")
    source = Path(function.inputs["code"].assets["handlers/echo.py"].path)
    text = source.read_text()
    try:
        source.write_text("raise RuntimeError('the source tree was imported')\n")
        [run] = tick(deployment)
    finally:
        source.write_text(text)
    assert run.error == ""


def test_batches_have_the_size_of_the_mapping(deployment: Deployment) -> None:
    for _ in range(7):
        put(deployment)
    assert [run.messages for run in deployment.functions.run()] == [3, 3, 1]


def test_a_partial_failure_keeps_only_the_failed_and_retries_them_until_dead(
    clock: SimulatedTime, deployment: Deployment
) -> None:
    start, functions = clock.now, deployment.functions
    put(deployment)
    put(deployment, fail=True)
    [run] = functions.run()
    assert (run.messages, len(run.failed), run.error) == (2, 1, "")
    assert functions.run() == []  # invisible until its timeout of 60 s is over
    clock.set(start + 61)
    [run] = functions.run()
    assert (run.messages, len(run.failed)) == (1, 1)
    clock.set(start + 122)  # received twice: maxReceiveCount is reached
    assert functions.run() == []
    assert dead(deployment) == 1


def test_a_failed_message_comes_back_as_soon_as_its_visibility_is_shortened_to(
    clock: SimulatedTime, deployment: Deployment
) -> None:
    start, functions = clock.now, deployment.functions
    put(deployment, fail=True, sooner=5, queue=deployment.outputs["queue"])
    [run] = functions.run()
    assert (len(run.failed), run.error) == (1, "")
    clock.set(start + 5)
    assert functions.run() == []
    clock.set(start + 6)
    assert [run.messages for run in functions.run()] == [1]


def test_what_the_listener_raises_fails_the_call(deployment: Deployment) -> None:
    def refuse(call: Call) -> None:
        raise RuntimeError(f"{call.operation} is refused")

    put(deployment, sooner=60, queue=deployment.outputs["queue"])
    deployment.functions.listener = refuse
    try:
        [run] = deployment.functions.run()
    finally:
        deployment.functions.listener = None
    assert run.error == "RuntimeError: ChangeMessageVisibility is refused"


def test_an_exception_fails_the_batch_and_is_reported(deployment: Deployment) -> None:
    put(deployment)
    put(deployment, **{"break": True})
    [run] = deployment.functions.run()
    assert (len(run.failed), run.error) == (2, "RuntimeError: told to break")
    assert len(run.log) == 2


LOOK = """
import boto3, sys
client = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="us-west-2",
                      aws_access_key_id="local", aws_secret_access_key="local")
print(len(client.list_queues()["QueueUrls"]))
"""


def test_another_process_can_look_around(deployment: Deployment, python: Callable[..., str]) -> None:
    with serve() as endpoint:
        assert python(LOOK, endpoint).strip() == "2"
    assert endpoint in command_line(endpoint, "us-west-2")
