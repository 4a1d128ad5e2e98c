"""A job's state in the job table, on moto."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from tests import models
from tests.node.clocks import FakeClock
from userdata.agent.aws.jobs import Jobs


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Iterator[Callable[[str], Jobs]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with models.moto():
        dynamodb: Any = boto3.client("dynamodb", region_name="us-west-2")
        ssm: Any = boto3.client("ssm", region_name="us-west-2")
        dynamodb.create_table(
            TableName="jobs",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
        )
        ssm.put_parameter(Name="/t", Value="none", Type="String")
        yield lambda revision: Jobs(dynamodb, ssm, "jobs", "resnet", revision, "/t", clock)
        assert ssm.get_parameter(Name="/t")["Parameter"]["Value"] == "b" * 40


def test_a_done_job_stays_done_for_its_revision(jobs: Callable[[str], Jobs]) -> None:
    job = jobs("a" * 40)
    assert not job.is_finished()
    job.mark("running")
    job.mark("done")
    job.mark("running")  # a late instance
    assert job.is_finished()
    assert not jobs("b" * 40).is_finished()
    jobs("b" * 40).mark("running")
    assert not jobs("b" * 40).is_finished()
    job.publish_finished()
    jobs("b" * 40).publish_finished()


def test_why_a_job_failed_stands_in_its_item(jobs: Callable[[str], Jobs]) -> None:
    jobs("a" * 40).mark("failed", "exit code 3")
    item = jobs("a" * 40)._item()
    assert (item["state"], item["reason"]) == ({"S": "failed"}, {"S": "exit code 3"})
    jobs("b" * 40).publish_finished()


def test_faults_of_hosts_are_counted_until_there_is_a_new_checkpoint_or_revision(
    jobs: Callable[[str], Jobs],
) -> None:
    job = jobs("a" * 40)
    assert [job.count_host_fault(1000.4) for _ in range(3)] == [1, 2, 3]
    assert job.count_host_fault(900.0) == 4  # the newest was deleted
    assert job.count_host_fault(1001.0) == 1
    assert job.count_host_fault(1001.0) == 2
    assert jobs("b" * 40).count_host_fault(1001.0) == 1
    jobs("b" * 40).publish_finished()


def test_a_refusal_is_an_answer_and_silence_is_none(
    jobs: Callable[[str], Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

    job = jobs("b" * 40)
    assert job.is_aws_reachable()
    for error, answers in [
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "m"}}, "GetItem"), True),
        (EndpointConnectionError(endpoint_url="https://x"), False),
        (NoCredentialsError(), False),
    ]:

        def fail(error: Exception = error, **_: Any) -> Any:
            raise error

        monkeypatch.setattr(job.dynamodb, "get_item", fail)
        assert job.is_aws_reachable() is answers, error
    job.publish_finished()
