"""Reads and writes of a rollout: errors of AWS, partial writes, idempotency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from contracts.agent.config import Service
from contracts.group import release as rows
from contracts.group import rollout_request
from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.group.rollout_request import RolloutRequest
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.aws.health.remediation import RemediationExecutor
from lambdas.core.health.model import Restart, ServiceSnapshot, WorkerHost
from lambdas.core.rollout.state import HostProgress, Rollout
from lambdas.core.rollout.step import MAX_RESTARTING, RolloutStep, plan_step
from tests.fakes.aws import FakeAws
from tests.node.configs import FakeClock
from tests.rollout.simulated_service import NEW, OLD
from userdata.agent.aws import releases
from userdata.agent.machine.errors import AgentError
from userdata.agent.work.service.restarts import MAX_TRIES, RestartCoordinator

GROUP = "ocr"
ROLLING = "/gpu-spot/dev/groups/ocr/rolling"
STEP = RolloutStep(
    Rollout(stable=OLD, candidate=NEW),
    WorkerReleases(OLD, NEW, frozenset({"i-1"})),
    RolloutRequest(requested_at=1_767_571_200, surge=1, restarting=("i-1",)),
)
WITH_HOST = replace(STEP.memory, hosts={"i-1": HostProgress(NEW.version, 5.0)})
SENT = replace(STEP, memory=WITH_HOST, restarts=(Restart(GROUP, "i-1", 0),))


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "any")


def roll(aws: FakeAws, step: RolloutStep = STEP) -> Rollout:
    memory, errors = apply(aws, step)
    assert errors == []
    return memory


def apply(aws: FakeAws, step: RolloutStep) -> tuple[Rollout, list[Exception]]:
    values = {name.rpartition("/")[2]: text for name, text in aws.parameters.items()}
    return executor(aws).apply_rollout(GROUP, step, values, 5.0)


def executor(aws: FakeAws) -> RemediationExecutor:
    return RemediationExecutor("dev", aws.client("ssm"), aws.client("dynamodb"), "registry", None, "topic")  # type: ignore[arg-type]


def read(aws: FakeAws, instance: str) -> Any:
    return releases.read(aws.client("dynamodb"), "registry", GROUP, instance)


def test_the_item_is_written_first_and_agents_read_their_release_from_it() -> None:
    aws = FakeAws()
    roll(aws)
    assert list(aws.calls.elements()) == ["put_item", "put_parameter"]
    assert rollout_request.parse(aws.parameters[ROLLING]) == STEP.request
    assert (read(aws, "i-1"), read(aws, "i-2")) == (NEW, OLD)


def test_an_unchanged_item_is_not_written_again_and_a_changed_one_is() -> None:
    aws = FakeAws()
    memory = roll(aws)
    aws.calls.clear()
    assert roll(aws, replace(STEP, memory=memory)) == memory
    assert list(aws.calls.elements()) == []
    more = replace(STEP, memory=memory, releases=WorkerReleases(OLD, NEW, frozenset({"i-1", "i-2"})))
    assert roll(aws, more).written_hash != memory.written_hash
    assert list(aws.calls.elements()) == ["put_item"]


def test_the_request_of_a_large_rollout_fits_into_a_parameter() -> None:
    now, ids = 1_767_571_200.0, [f"i-{n:017x}" for n in range(1000)]
    hosts = tuple(
        WorkerHost(name, (Worker(GROUP, name, 0, 0.0, now, report=WorkerReport(OLD.version)),), 1, 0.0)
        for name in ids
    )
    memory = replace(STEP.memory, hosts=dict.fromkeys(ids[:200], HostProgress(NEW.version, now)))
    snapshot = ServiceSnapshot(now, hosts, target=1000, maximum=2000)
    step = plan_step(snapshot, (), HealthSettings(), DesiredRelease(NEW, 1), memory)
    assert len(step.request.restarting) == MAX_RESTARTING
    assert len(rollout_request.dump(step.request)) <= 4096


def test_the_end_of_a_rollout_withdraws_the_request_to_the_controller() -> None:
    aws = FakeAws()
    memory = roll(aws)
    roll(aws, RolloutStep(memory, STEP.releases))
    assert aws.parameters[ROLLING] == "{}"


def test_a_failed_write_is_not_recorded_and_nothing_is_requested() -> None:
    aws = FakeAws(failures={"put_item": client_error("ProvisionedThroughputExceededException")})
    memory, [_] = apply(aws, SENT)
    assert (memory, aws.parameters, aws.rows) == (STEP.memory, {}, {})
    aws.failures.clear()
    assert roll(aws).written_hash
    assert list(aws.calls.elements()) == ["put_item", "put_item", "put_parameter"]


def test_after_a_partial_write_both_are_written_again() -> None:
    aws = FakeAws(failures={"put_parameter": client_error("ThrottlingException")})
    memory, [_] = apply(aws, SENT)
    assert memory == STEP.memory
    before = aws.rows
    aws.failures.clear()
    roll(aws, replace(STEP, memory=memory))
    assert aws.rows == before
    assert rollout_request.parse(aws.parameters[ROLLING]) == STEP.request


def test_a_restart_that_cannot_be_requested_is_tried_again() -> None:
    aws = FakeAws(failures={"update_item i-1/0": client_error("AccessDeniedException")})
    memory, [_] = apply(aws, SENT)
    assert (memory.hosts, bool(memory.written_hash)) == ({}, True)
    aws.failures.clear()
    assert roll(aws, SENT).hosts == SENT.memory.hosts


def test_a_restart_of_a_worker_that_no_longer_exists_is_not_a_failure() -> None:
    aws = FakeAws(
        rows={GROUP: {"i-3/0": {}}}, failures={"update_item i-2/0": client_error("AccessDeniedException")}
    )
    failed = executor(aws).request_restarts([Restart(GROUP, f"i-{n}", 0) for n in (1, 2, 3)], 5.0)
    assert set(failed) == {"i-2"}
    assert aws.rows == {GROUP: {"i-3/0": {"restart": {"N": "5"}}}}


def test_without_an_item_there_is_no_release() -> None:
    assert read(FakeAws(), "i-1") is None


@pytest.mark.parametrize(
    "error",
    [
        client_error("AccessDeniedException"),
        EndpointConnectionError(endpoint_url="https://dynamodb"),
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    ],
)
def test_a_failed_read_is_a_one_line_error(error: Exception) -> None:
    with pytest.raises(AgentError, match=r"^release of ocr in registry: ") as caught:
        read(FakeAws(failures={"get_item": error}), "i-1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"stable": {}}', '{"stable": null, "trial": null}'])
def test_a_malformed_item_is_a_one_line_error(text: str) -> None:
    item = {**rows.dump(GROUP, WorkerReleases(OLD)), "releases": {"S": text}}
    with pytest.raises(AgentError, match=r"^release of ocr in registry: "):
        read(FakeAws(rows={item["group"]["S"]: {item["worker"]["S"]: item}}), "i-1")


def run_now(work: Callable[[], None]) -> None:
    work()


DECLARED, FETCHED = Service(command=("old",)), Service(command=("new",))


@dataclass
class FakeFetch:
    """Returns the next result, or raises it if it is an error."""

    results: list[Service | AgentError]
    calls: int = 0

    def __call__(self) -> Service:
        self.calls += 1
        result = self.results.pop(0)
        if isinstance(result, AgentError):
            raise result
        return result


def test_nothing_is_fetched_without_a_restart_request() -> None:
    fetch = FakeFetch([])
    assert RestartCoordinator(fetch, run_now, FakeClock()).poll((), DECLARED) == (DECLARED, frozenset())
    assert fetch.calls == 0


def test_workers_run_until_the_fetch_is_done_and_all_requested_ones_restart_once() -> None:
    later: list[Any] = []
    renewal = RestartCoordinator(FakeFetch([FETCHED]), later.append, FakeClock())
    assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset())
    assert renewal.poll({0, 1}, DECLARED) == (DECLARED, frozenset())
    [fetching] = later  # fetched once, however often it is requested
    fetching()
    assert renewal.poll((), DECLARED) == (FETCHED, frozenset({0, 1}))
    assert renewal.poll((), FETCHED) == (FETCHED, frozenset())
    assert later == [fetching]


def test_after_some_failed_fetches_workers_restart_with_the_present_release() -> None:
    fetch = FakeFetch([AgentError("pull refused")] * MAX_TRIES)
    renewal = RestartCoordinator(fetch, run_now, FakeClock())
    for _ in range(MAX_TRIES - 1):
        assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset())
        # A restart is requested with each heartbeat: without a request, nothing is fetched.
        assert renewal.poll((), DECLARED) == (DECLARED, frozenset())
    assert renewal.poll({0}, DECLARED) == (DECLARED, frozenset({0}))
    assert fetch.calls == MAX_TRIES


def test_a_success_resets_the_count_of_failures() -> None:
    fetch = FakeFetch([*[AgentError("pull refused")] * (MAX_TRIES - 1), FETCHED, AgentError("again")])
    renewal = RestartCoordinator(fetch, run_now, FakeClock())
    for _ in range(MAX_TRIES - 1):
        renewal.poll({0}, DECLARED)
    assert renewal.poll({0}, DECLARED) == (FETCHED, frozenset({0}))
    assert renewal.poll({0}, FETCHED) == (FETCHED, frozenset())
