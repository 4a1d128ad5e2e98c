"""A job's state in the job table, on moto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import boto3
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from contracts import codec, limits
from contracts.agent import config
from contracts.stored import ContractError
from tests import models
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import make_tables
from userdata.agent.aws.jobs import Jobs
from userdata.agent.cli import load
from userdata.agent.machine.errors import ConfigError


@pytest.fixture
def jobs(clock: FakeClock) -> Iterator[Callable[[str], Jobs]]:
    with models.moto():
        dynamodb = make_tables("jobs")
        ssm: Any = boto3.client("ssm", region_name="us-west-2")
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


def test_a_training_configuration_is_read() -> None:
    parsed = configs.load(configs.training())
    assert parsed.training.command == ("python", "train.py")
    assert parsed.volume.size_gib == 100
    assert parsed.hooks.terminate_seconds == 300.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drainSecond": 3}, "drainSecond is not a known key"),
        ({"drainSeconds": True}, "drainSeconds must be of type int, not True"),
        ({"drainSeconds": 111}, "drainSeconds must be from 0 to 110, not 111"),
        ({"side": "third"}, "side must be 'primary' or 'fallback', not 'third'"),
        ({"volume": {"sizeGib": "100"}}, "volume.sizeGib must be of type int, not '100'"),
        ({"volume": {"dataset": "datasets"}}, "volume.dataset must be text that matches ^s3://"),
        (
            {"volume": {"initializationRateMib": 50}},
            "volume.initializationRateMib must be from 100 to 300, not 50",
        ),
        ({"service": {"command": ["x"]}}, "exactly one of training, service, sharedHost and proxy"),
        ({"hooks": {"autoScalingGroup": "a", "terminateSeconds": 5}}, "must be from 30 to 7200"),
        (
            {"efs": [{"fileSystem": "fs-1", "accessPoint": "nope", "path": "/x"}]},
            "efs[0].accessPoint must be text",
        ),
        ({"volume": None}, "training needs volume or efs"),
        ({"pollSeconds": 60}, "pollSeconds must be from 1 to 5, not 60"),
        (
            {"training": {**configs.training()["training"], "revision": "main"}},
            "training.revision must be text that matches",
        ),
        ({"service": {"image": "repo/worker:latest"}}, "service.image must be text that matches"),
    ],
)
def test_a_wrong_key_or_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError) as error:
        configs.load(configs.training(**change))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_key_and_a_missing_file_are_named(tmp_path: Path) -> None:
    body = configs.training()
    del body["group"]
    with pytest.raises(ContractError, match="group is missing"):
        configs.load(body)
    with pytest.raises(ConfigError, match=r"no-such\.json: No such file"):
        load(tmp_path / "no-such.json")
    wrong = tmp_path / "agent.json"
    wrong.write_text(json.dumps(body), "utf-8")
    with pytest.raises(ConfigError, match=r"agent\.json: group is missing"):
        load(wrong)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the configuration, within its bounds."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = tuple(mark for mark in arguments[1:] if isinstance(mark, limits.Bound))
        return within(arguments[0], bounds)
    if origin in (UnionType, Union):
        return st.none() | of_type(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        parts = {name: of_type(one) for name, one in hints.items()}
        return st.fixed_dictionaries(parts).map(lambda values: built(hint, values))
    return {
        str: st.text(),
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
    }[hint]


def built(kind: type[Any], values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except ValueError:  # a check that looks at several keys
        reject()


def within(kind: Any, bounds: tuple[limits.Bound, ...]) -> st.SearchStrategy[Any]:
    strategy = of_type(kind)
    for bound in bounds:
        if isinstance(bound, limits.Within):
            number = st.integers if kind is int else st.floats
            strategy = number(bound.minimum, bound.maximum)
        elif isinstance(bound, limits.Matches):
            strategy = st.from_regex(bound.pattern, fullmatch=True)
    return strategy.filter(lambda value: all(bound.allows(value) for bound in bounds))


HINTS = get_type_hints(config.Config, include_extras=True)
COMMON = ("region", "stack", "group", "group_role", "registry_table", "drain_seconds", "hooks", "metrics")
ALONE = of_type(config.Training).map(lambda drawn: replace(drawn, experiments={}, nodes=None))
PARTS = (config.Service, config.Training, config.Volume, config.Dataset, config.EfsMount, config.Hooks)


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=10)
@given(data=st.data())
def test_what_is_dumped_is_parsed_again(part: type[Any], data: st.DataObject) -> None:
    drawn = data.draw(of_type(part))
    assert codec.parse(part, json.loads(json.dumps(codec.dump(drawn)))) == drawn


@given(
    common=st.fixed_dictionaries({name: of_type(HINTS[name]) for name in COMMON}),
    work=st.fixed_dictionaries({"service": of_type(config.Service)})
    | st.fixed_dictionaries({"training": ALONE, "volume": of_type(config.Volume)})
    | st.fixed_dictionaries(
        {"training": of_type(config.Training), "efs": st.tuples(of_type(config.EfsMount))}
    ),
)
def test_a_whole_configuration_is_parsed_again(common: dict[str, Any], work: dict[str, Any]) -> None:
    drawn = config.Config(**common, **work)
    assert config.parse(json.dumps(codec.dump(drawn))) == drawn


def test_what_equals_its_default_is_left_out() -> None:
    assert codec.dump(config.Service(command=("serve",), slots_per_gpu=1)) == {"command": ["serve"]}
