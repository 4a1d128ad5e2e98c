"""What a roll-out writes and reads: AWS refuses, a write stays half done, a second pass changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from contracts.agent.config import Service
from contracts.group import release as rows
from contracts.group import rolling
from contracts.group.release import WorkerReleases
from contracts.group.rolling import Rolling
from lambdas.aws.health.remediation import Doctor
from lambdas.core.health.model import Restart
from lambdas.core.rollout.memory import Rollout
from lambdas.core.rollout.step import RolloutStep
from tests.rollout.scenes import NEW, OLD
from userdata.agent.aws import releases
from userdata.agent.machine.errors import AgentError
from userdata.agent.work.service.renewal import TRIES, Renewal

GROUP = "ocr"
ROLLING = "/gpu-spot/dev/groups/ocr/rolling"
STEP = RolloutStep(
    Rollout(stable=OLD, trial=NEW),
    WorkerReleases(OLD, NEW, frozenset({"i-1"})),
    Rolling(at=1_767_571_200, surge=1, anew=("i-1",)),
)


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "any")


@dataclass
class Aws:
    """The calls of a roll-out in their order; those in ``fails`` raise what stands there."""

    item: dict[str, Any] | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)

    def put_item(self, TableName: str, Item: dict[str, Any]) -> None:  # noqa: N803
        self._call("put_item")
        self.item = Item

    def put_parameter(self, Name: str, Value: str, Type: str, Overwrite: bool) -> None:  # noqa: N803
        self._call("put_parameter")
        assert (Type, Overwrite) == ("String", True)
        self.parameters[Name] = Value

    def update_item(self, Key: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        worker = Key["worker"]["S"]
        self._call(f"update_item {worker}")
        self.restarted.append(worker)

    def get_item(self, TableName: str, Key: Any, ConsistentRead: bool) -> dict[str, Any]:  # noqa: N803
        self._call("get_item")
        assert ConsistentRead  # what was written before the wish must be found
        return {} if self.item is None else {"Item": self.item}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    @property
    def leaves(self) -> dict[str, str]:
        return {name.rpartition("/")[2]: text for name, text in self.parameters.items()}

    def roll(self, step: RolloutStep = STEP) -> Rollout:
        doctor = Doctor("dev", self, self, "registry", self, "topic")  # type: ignore[arg-type]
        return doctor.roll(GROUP, step, self.leaves)

    def read(self, instance: str) -> Any:
        return releases.read(self, "registry", GROUP, instance)  # type: ignore[arg-type]


def test_the_row_is_written_first_and_agents_read_from_it_what_they_start_from() -> None:
    aws = Aws()
    aws.roll()
    assert aws.calls == ["put_item", "put_parameter"]
    assert rolling.parse(aws.parameters[ROLLING]) == STEP.rolling
    assert (aws.read("i-1"), aws.read("i-2")) == (NEW, OLD)


def test_a_second_pass_writes_nothing_and_another_row_is_written() -> None:
    aws = Aws()
    memory = aws.roll()
    aws.calls.clear()
    assert aws.roll(replace(STEP, memory=memory)) == memory
    assert aws.calls == []
    more = replace(STEP, memory=memory, releases=WorkerReleases(OLD, NEW, frozenset({"i-1", "i-2"})))
    assert aws.roll(more).written != memory.written
    assert aws.calls == ["put_item"]


def test_who_has_ended_a_roll_out_takes_back_what_was_asked_of_the_controller() -> None:
    aws = Aws()
    memory = aws.roll()
    aws.roll(RolloutStep(memory, STEP.releases, None))
    assert aws.parameters[ROLLING] == rolling.NONE


def test_a_row_that_is_refused_is_not_remembered_and_nothing_is_asked() -> None:
    aws = Aws(fails={"put_item": refused("ProvisionedThroughputExceededException")})
    with pytest.raises(ClientError):
        aws.roll()
    assert aws.parameters == {}
    aws.fails.clear()
    assert aws.roll().written
    assert aws.calls == ["put_item", "put_item", "put_parameter"]


def test_a_row_that_was_written_without_the_parameter_is_written_again_and_then_both_stand() -> None:
    aws = Aws(fails={"put_parameter": refused("ThrottlingException")})
    with pytest.raises(ClientError):
        aws.roll()
    before = aws.item
    aws.fails.clear()
    aws.roll()  # its memory is the old one: the failed pass returned none
    assert aws.item == before
    assert rolling.parse(aws.parameters[ROLLING]) == STEP.rolling


def test_of_workers_that_cannot_be_asked_those_that_are_gone_are_no_failure() -> None:
    aws = Aws(
        fails={
            "update_item i-1/0": refused("ConditionalCheckFailedException"),
            "update_item i-2/0": refused("AccessDeniedException"),
        }
    )
    doctor = Doctor("dev", aws, aws, "registry", aws, "topic")  # type: ignore[arg-type]
    failed = doctor.restart([Restart(GROUP, f"i-{n}", 0) for n in (1, 2, 3)], 5.0)
    assert set(failed) == {"i-2"}
    assert aws.restarted == ["i-3/0"]


def test_without_a_row_nobody_has_said_any_release() -> None:
    assert Aws().read("i-1") is None


@pytest.mark.parametrize(
    "error",
    [
        refused("AccessDeniedException"),
        EndpointConnectionError(endpoint_url="https://dynamodb"),
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error_of_one_line(error: Exception) -> None:
    with pytest.raises(AgentError, match=r"^release of ocr in registry: ") as caught:
        Aws(fails={"get_item": error}).read("i-1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"stable": {}}', '{"stable": null, "trial": null}'])
def test_a_row_that_makes_no_sense_is_an_error_of_one_line(text: str) -> None:
    item = {**rows.dump(GROUP, WorkerReleases(OLD)), "releases": {"S": text}}
    with pytest.raises(AgentError, match=r"^release of ocr in registry: "):
        Aws(item=item).read("i-1")


def at_once(work: Callable[[], None]) -> None:
    work()


DECLARED, FETCHED = Service(command=("old",)), Service(command=("new",))


@dataclass
class Fetch:
    """Answers with what comes next; an error is raised."""

    answers: list[Service | AgentError]
    asked: int = 0

    def __call__(self) -> Service:
        self.asked += 1
        found = self.answers.pop(0)
        if isinstance(found, AgentError):
            raise found
        return found


def test_nothing_is_asked_while_nobody_wishes() -> None:
    fetch = Fetch([])
    assert Renewal(fetch, at_once).poll((), DECLARED) == (DECLARED, frozenset())
    assert fetch.asked == 0


def test_workers_go_on_until_it_is_there_and_then_all_that_were_wished_start_anew_once() -> None:
    later: list[Any] = []
    renewal = Renewal(Fetch([FETCHED]), later.append)
    assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset())
    assert renewal.poll({0, 1}, DECLARED) == (DECLARED, frozenset())
    [fetching] = later  # asked once, however often it is wished
    fetching()
    assert renewal.poll((), DECLARED) == (FETCHED, frozenset({0, 1}))
    assert renewal.poll((), FETCHED) == (FETCHED, frozenset())
    assert later == [fetching]


def test_what_cannot_be_fetched_is_asked_a_few_times_and_then_workers_start_from_what_there_is() -> None:
    fetch = Fetch([AgentError("pull refused")] * TRIES)
    renewal = Renewal(fetch, at_once)
    for _ in range(TRIES - 1):
        assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset())
        # Who wishes it does so with each heartbeat: without, nothing is asked.
        assert renewal.poll((), DECLARED) == (DECLARED, frozenset())
    assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset({0}))
    assert fetch.asked == TRIES


def test_after_a_success_failures_count_anew() -> None:
    fetch = Fetch([*[AgentError("pull refused")] * (TRIES - 1), FETCHED, AgentError("again")])
    renewal = Renewal(fetch, at_once)
    for _ in range(TRIES - 1):
        renewal.poll({0}, DECLARED)
    assert renewal.poll({0}, DECLARED) == (FETCHED, frozenset({0}))
    assert renewal.poll({0}, FETCHED) == (FETCHED, frozenset())
