"""What is read of a stack's jobs, and in how many calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.jobs.attempt import ATTEMPTS_RETAINED
from gpu_spot.jobs import account
from gpu_spot.jobs.reader import JobError, JobReader, find_tables
from tests.jobs.seen import NOW, RUN, stint
from tests.jobs.stack import REGION, Stack


def test_a_job_that_trains_is_read_from_what_its_agent_wrote(stack: Stack) -> None:
    stack.group("resnet")
    stack.group("inference", run="")
    instance = stack.trains()
    told = stack.reader.shown("resnet")
    assert (told.standing.phase, told.seen.run) == ("running", RUN)
    assert told.standing.host is not None
    assert (told.standing.host.instance, told.standing.host.market) == (instance, "on-demand")
    assert [one.seen.name for one in stack.reader.listed()] == ["resnet"]


def test_the_calls_do_not_grow_with_the_life_of_a_job(stack: Stack) -> None:
    stack.group("resnet")
    stack.trains()
    stack.hold("resnet", "i-1", 250)
    for token in range(151, 251):
        stack.wrote("resnet", stint(token, f"i-{token}", 90_000 - 300 * token, 89_800 - 300 * token))
    stack.calls.clear()
    told = stack.reader.shown("resnet")
    assert told.story is not None
    assert len(told.story.chapters) == ATTEMPTS_RETAINED
    assert told.story.is_cut
    assert stack.calls == {
        "GetParametersByPath": 1,
        "ListTables": 1,
        "BatchGetItem": 2,
        "DescribeInstances": 1,
        "Query": 1,
        "DescribeSpotPriceHistory": 1,
    }


def test_a_list_asks_once_for_all_but_for_their_workers(stack: Stack) -> None:
    for number in range(5):
        stack.group(f"job-{number}")
    stack.trains("job-3")
    stack.calls.clear()
    found = stack.reader.listed()
    assert [one.standing.phase for one in found] == ["pending"] * 3 + ["running", "pending"]
    assert stack.calls == {
        "GetParametersByPath": 3,  # ten on a page, and moto's last one is empty
        "ListTables": 1,
        "BatchGetItem": 1,
        "DescribeInstances": 1,
        "Query": 5,
    }


def test_what_dynamodb_has_not_read_is_asked_for_again_and_not_for_ever(stack: Stack) -> None:
    stack.group("resnet")
    stack.agent().mark("done")
    dynamodb, asked = stack("dynamodb"), list[Any]()
    real = dynamodb.batch_get_item

    def throttled(RequestItems: Any) -> Any:  # noqa: N803 - boto3's name
        asked.append(RequestItems)
        nothing = {"Responses": {}, "UnprocessedKeys": RequestItems}
        return real(RequestItems=RequestItems) if len(asked) == 3 else nothing

    dynamodb.batch_get_item = throttled
    assert [one.standing.phase for one in stack.reader.listed()] == ["done"]
    assert len(asked) == 3
    asked[:] = [None] * 3
    with pytest.raises(JobError, match="1 items were not read, DynamoDB throttles; again later"):
        stack.reader.listed()


def test_a_row_of_the_history_that_makes_no_sense_hides_no_other(stack: Stack) -> None:
    stack.group("resnet")
    stack.hold("resnet", "i-2", 2)
    stack.wrote("resnet", stint(1, "i-1", 900, 300))
    stack("dynamodb").put_item(TableName=stack.jobs, Item={"job": {"S": "resnet#02"}, "token": {"N": "2"}})
    assert [one.token for one in stack.reader.one("resnet").stints] == [1]
    stack.wrote("resnet", replace(stint(1, "i-1", 900, 300), token=101))  # not a lease that was ever given
    assert stack.reader.one("resnet").stints == ()


def test_a_job_that_is_not_there_is_told_in_one_line(stack: Stack) -> None:
    with pytest.raises(JobError, match=r"^job 'bert': there is none; the stack has no job$"):
        stack.reader.one("bert")
    stack.group("resnet")
    stack.group("atlas")
    with pytest.raises(JobError, match=r"^job 'bert': there is none; the stack has atlas, resnet$"):
        stack.reader.one("bert")


def test_the_tables_are_the_stack_s_own(stack: Stack) -> None:
    stack("dynamodb").create_table(
        TableName="gpu-spot-dev-jobs-archive",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
    )
    assert find_tables(stack("dynamodb"), "dev").jobs == stack.jobs
    with pytest.raises(
        JobError, match="stack 'prod': one table gpu-spot-prod-jobs-… is needed, there is none"
    ):
        find_tables(stack("dynamodb"), "prod")


def test_a_job_waits_for_its_dataset_and_who_prepares_it_does_not(stack: Stack) -> None:
    stack.group("vit", dataset="atlas@1", prepared_by="atlas-data")
    stack.group("atlas-data", dataset="atlas@1", prepared_by="atlas-data", run=f"{RUN}/atlas@1")
    stack.parameter("atlas-data", "prepared", "none")
    assert {one.seen.name: one.standing.phase for one in stack.reader.listed()} == {
        "vit": "preparing",
        "atlas-data": "pending",
    }
    stack.parameter("atlas-data", "prepared", "atlas@1")
    assert stack.reader.one("vit").waits_for == ""


def test_the_time_is_aws_s_own(stack: Stack) -> None:
    stack.group("resnet")
    seen = JobReader(stack, "dev", REGION).one("resnet")
    assert abs(seen.now - datetime.now(UTC).timestamp()) < 600


def test_the_account_is_json_and_has_the_steps_of_the_instance_that_has_the_job(stack: Stack) -> None:
    stack.group("resnet")
    instance = stack.trains()
    told = stack.reader.shown("resnet")
    seen = replace(told.seen, steps={"i-9": (7, None), instance: (40, 200)})
    shown = account.to_json(replace(told, seen=seen))
    assert (shown["state"], shown["step"], shown["steps"]) == ("running", 40, 200)
    assert shown["host"]["instance"] == instance
    assert shown["at"] == NOW
