"""What the Job controller of Kubernetes makes of the ends of a job's pods."""

from __future__ import annotations

import fnmatch
import json
import re
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from infra.components.cluster import job_failures
from infra.kubernetes import pods
from infra.kubernetes.jobs import STOPPED_EXIT_CODE
from tests.cluster import folder_plays, plays, survivor_plays
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import KILLED_EXIT_CODE, PlayedKubelet, PodLife
from tests.cluster.local import AUDIT_LOG
from tests.cluster.plays import CHECKS_OUT, DEAF, SAVES, JobPlay, JobState, Stage
from tests.cluster.trainers import TrainerKubelet
from tests.waiting import TIMEOUT_SECONDS, wait_until

GRACE_SECONDS: Final = 2
ENDS: Final[dict[str, tuple[PodLife, Callable[[JobPlay, Any], None], int]]] = {
    # what the pod does, how it is taken, how many failures are counted; those that are not fail an index
    "drained, saves": (SAVES, lambda play, pod: play.drain(pod), 0),
    "drained, killed": (DEAF, lambda play, pod: play.drain(pod, GRACE_SECONDS), 0),
    "drained, checks out": (CHECKS_OUT, lambda play, pod: play.drain(pod), 0),
    "deleted, saves": (SAVES, lambda play, pod: play.delete(pod), 0),
    # Nothing says why these ended: a person's `kubectl delete pod`, or a drain that may not evict.
    "deleted, killed": (DEAF, lambda play, pod: play.delete(pod, GRACE_SECONDS), 1),
    "deleted, checks out": (CHECKS_OUT, lambda play, pod: play.delete(pod), 1),
    "fault": (PodLife(), lambda play, pod: play.end(pod, 1), 1),
    "out of memory": (PodLife(), lambda play, pod: play.end(pod, KILLED_EXIT_CODE), 1),
}
REJECTED: Final = 3
"""Limit of a Job's ends, whose own would take the controller's pauses for hours."""
FAULTS: Final = {"crashes": "exit 3", "killed-for-memory": "kill -KILL $PPID; sleep 99"}
"""Commands of which each run is a fault, and what they do."""
SAVES_LATER: Final = PodLife(stops=4, stop_code=75)
SEVERAL: Final[dict[str, tuple[PodLife, bool, bool, str]]] = {
    # the taken pod, whether its peer ends first, whether a node is taken, why the run's Job fails
    "saves": (SAVES, False, True, "PodFailurePolicy"),
    "saves after its peer crashed": (SAVES_LATER, True, True, "PodFailurePolicy"),
    "killed": (DEAF, False, True, "PodFailurePolicy"),
    "both crash": (PodLife(), True, False, "BackoffLimitExceeded"),
}


@dataclass(frozen=True)
class Started:
    """Results of the plays, by name, as they come in."""

    results: dict[str, Future[Any]]

    def of(self, name: str) -> Any:
        return self.results[name].result(2 * TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def started(api: ClusterApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    objects = plays.job_objects()
    jobs_and_services = {"Job", "Deployment", "ScaledObject", "TriggerAuthentication"}
    for item in objects:
        if item["kind"] not in jobs_and_services:
            api.apply(item)
    count = len(ENDS) + len(SEVERAL) + len(FAULTS) + 11
    with (
        PlayedKubelet(api, plays.NAMESPACE) as kubelet,
        TrainerKubelet(api, plays.NAMESPACE, tmp_path_factory.mktemp("trainers")) as trainers,
        ThreadPoolExecutor(count) as pool,
    ):
        stage = Stage(api, kubelet)
        results = {
            f"end: {name}": pool.submit(plays.taken, stage, f"end-{number}", life, take)
            for number, (name, (life, take, _)) in enumerate(ENDS.items())
        }
        results |= {
            f"several: {name}": pool.submit(
                plays.node_of_several,
                *(stage, f"several-{number}", life),
                peer_ends_first=peer_ends_first,
                is_taken=is_taken,
            )
            for number, (name, (life, peer_ends_first, is_taken, _)) in enumerate(SEVERAL.items())
        }
        results["drained thrice"] = pool.submit(plays.drained_thrice, stage, "drained-thrice")
        results["experiment"] = pool.submit(
            plays.drained_thrice, stage, "experiment", environment={}, matrix={"SEED": [1]}
        )
        results["lost"] = pool.submit(plays.node_lost, stage, "lost", while_stopping=False)
        results["lost in a drain"] = pool.submit(plays.node_lost, stage, "lost-drained", while_stopping=True)
        results["rejected"] = pool.submit(plays.rejected, stage, REJECTED)
        results["replaced"] = pool.submit(plays.replaced, stage)
        results["survivors"] = pool.submit(survivor_plays.survivors, stage, "survivors")
        results["experiments"] = pool.submit(plays.experiment_failed, stage)
        for name, play in (
            ("two revisions", folder_plays.two_revisions),
            ("cut off", folder_plays.cut_off),
            ("outage", folder_plays.outage),
        ):
            results[name] = pool.submit(play, stage, trainers)
        for name, script in FAULTS.items():
            results[name] = pool.submit(folder_plays.failed_twice, stage, trainers, name, script)
        yield Started(results)


@pytest.mark.parametrize("name", ENDS)
def test_only_faults_are_counted(started: Started, name: str) -> None:
    state: JobState = started.of(f"end: {name}")
    assert (state.counted, state.failed_indexes) == (ENDS[name][2], "" if ENDS[name][2] else "0")
    assert not state.has_ended


def test_interruptions_do_not_fail_a_job_whatever_its_command_does(started: Started) -> None:
    """Its pods are killed, not saved, and the Job may fail once."""
    waits, state, _ = started.of("drained thrice")
    assert (state.counted, state.failed_indexes, state.conditions) == (0, "0-2", ())
    # The successor of an index would have to wait for 10, 20 and 40 s; a busy machine may be late once.
    assert statistics.median(waits) < 8


def test_the_controller_waits_twice_as_long_after_each_interruption_of_an_experiment(
    started: Started,
) -> None:
    waits, _, _ = started.of("experiment")
    expected = [pods.restart_delay_seconds(number) for number in (1, 2, 3)]
    assert expected == [10, 20, 40]
    for seconds, delay in zip(waits, expected, strict=True):
        assert 0.85 * delay - 1 < seconds < 1.25 * delay + 5


def matches(pattern: str, event: Any) -> bool:
    """Return whether a JSON filter pattern of CloudWatch Logs matches an event.

    Of its syntax: ``=`` with ``*``, ``IS TRUE``, ``&&``, ``||``.
    """

    def holds(comparison: re.Match[str]) -> str:
        value = event
        for key in re.findall(r"\w+", comparison[1]):
            part = int(key) if key.isdigit() and isinstance(value, list) else key
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return "False"
        if comparison[2] is None:
            return str(value is True)
        return str(isinstance(value, str) and fnmatch.fnmatchcase(value, comparison[2]))

    text = re.sub(r'\$([\w.\[\]]+) (?:= "([^"]*)"|IS TRUE)', holds, pattern.strip("{} "))
    assert re.fullmatch(r"(True|False|&&|\|\||[() ])+", text), text
    return bool(eval(text.replace("&&", "and").replace("||", "or")))


def test_the_audit_log_says_which_job_failed(started: Started, api: ClusterApi) -> None:
    """The metric filter of a created cluster, on the API server's own events."""
    log = api.folder / AUDIT_LOG
    if not log.exists():
        pytest.skip("the cluster of KUBECONFIG has no audit log here")
    started.of("experiments")

    def events() -> list[Any]:
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    def failed(name: str, said: str = "failures") -> list[Any]:
        pattern = job_failures.patterns(plays.NAMESPACE, name)[said]
        return [event for event in events() if matches(pattern, event)]

    wait_until(lambda: failed("experiments"), interval_seconds=0.5)
    assert {event["objectRef"]["name"] for event in failed("experiments")} == {"experiments"}
    assert failed("drained-thrice") == []
    assert any(event["objectRef"]["name"] == "drained-thrice" for event in events())
    started.of("rejected")
    assert len(failed("rejected", "starts-failed")) == REJECTED + 1
    started.of("lost")
    assert failed("lost", "starts-failed") == failed("experiments", "starts-failed") == []


@pytest.mark.parametrize("name", FAULTS)
def test_faults_above_the_limit_fail_the_job(started: Started, name: str) -> None:
    state = started.of(name)
    reasons = {item.replace("FailureTarget", "Failed") for item in state.conditions}
    assert "Failed: PodFailurePolicy" in reasons
    assert state.failed_indexes in ("", "0")  # no other life began


def test_rejected_pods_end_their_job(started: Started) -> None:
    state, pods = started.of("rejected")
    assert "BackoffLimitExceeded" in state.conditions[-1]
    assert pods == REJECTED + 1


@pytest.mark.parametrize("name", ["lost", "lost in a drain"])
def test_a_lost_node_is_not_counted_and_has_one_successor(started: Started, name: str) -> None:
    state, at_once = started.of(name)
    assert (state.counted, at_once) == (0, 1)


def test_pods_of_a_job_never_run_at_the_same_time(started: Started) -> None:
    assert started.of("drained thrice")[2] == 1


def test_another_revision_is_refused_until_the_old_pod_has_ended(started: Started) -> None:
    code, seconds, at_once = started.of("replaced")
    assert code == 422
    assert seconds >= plays.REPLACED_STOPS_SECONDS - 1
    assert at_once == 1


@pytest.mark.parametrize("name", SEVERAL)
def test_a_lost_node_of_several_is_not_counted_even_if_its_peer_crashes_first(
    started: Started, name: str
) -> None:
    """JobSet ignores its maximum of restarts for the reason PodFailurePolicy (``rules`` of the runtime)."""
    assert started.of(f"several: {name}") == SEVERAL[name][3]


def test_a_lost_node_comes_back_at_once_and_no_further_pod_ends(started: Started) -> None:
    """Whatever ended it, no other pod is touched, and an end that was taken is not counted."""
    played: survivor_plays.Survivors = started.of("survivors")
    # Lives 0 to 3 begin; 4 to 7 follow those that are drained, 8 the lost one; a fault has the same index.
    assert played.indexes == [0, 1, 2, 3, 4, 5, 6, 7, 8, 2]
    assert statistics.median(played.waits) < 8
    assert (played.survivor, played.at_once) == (True, 4)
    assert (played.state.counted, played.state.failed_indexes) == (1, "0,1,4-6")


def test_a_run_of_several_nodes_is_complete_with_a_single_success(started: Started) -> None:
    played: survivor_plays.Survivors = started.of("survivors")
    assert played.state.succeeded == 1
    assert {"SuccessCriteriaMet: SuccessPolicy", "Complete: SuccessPolicy"} <= {*played.state.conditions}


def test_an_experiment_that_cannot_run_ends_no_other(started: Started) -> None:
    state = started.of("experiments")
    assert (state.failed_indexes, state.succeeded) == ("0", 1)


def test_of_two_revisions_on_one_folder_one_trains(started: Started) -> None:
    """Their Jobs are beside each other, as if the engine had not deleted the old one first."""
    folder = started.of("two revisions")
    assert (len(folder.trains()), folder.doubles()) == (2, [])


def test_a_trainer_without_the_api_server_goes_on_and_its_successor_waits(started: Started) -> None:
    """Once it has no file system either it ends by itself, before its lease does."""
    folder, state, code = started.of("cut off")
    assert (len(folder.trains()), folder.doubles()) == (2, [])
    assert (state.counted, code) == (0, STOPPED_EXIT_CODE)


def test_an_outage_of_the_git_host_counts_nothing(started: Started) -> None:
    folder, state = started.of("outage")
    assert (state.counted, state.has_ended) == (0, False)
    assert len(folder.trains()) == 1
