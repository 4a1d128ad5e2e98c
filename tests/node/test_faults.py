"""Classification of failed runs, and the response to each class."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.served import Handler, served
from userdata.agent.machine.errors import AgentError, CommandError, DependencyUnavailableError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.failures import faults
from userdata.agent.work.failures.faults import (
    MAX_UNAVAILABLE_TRIES,
    DiskFacts,
    FailedRun,
    FailureCounts,
    Fault,
    FaultVerdict,
    HostDiagnosis,
    NextAction,
)

CRASH = FailedRun("exit code 3")
AWAY = FailedRun("git: exit 128: no answer", is_dependency_unavailable=True)


@pytest.mark.parametrize(
    ("seen", "fault", "says"),
    [
        (HostDiagnosis(), Fault.JOB, "exit code 3"),
        (
            HostDiagnosis(gpus_expected=8, gpus_missing=1),
            Fault.HOST,
            "1 of 8 GPUs do not respond (exit code 3)",
        ),
        (HostDiagnosis(xids=(79,)), Fault.HOST, "Xid 79"),
        (HostDiagnosis(xids=(13, 31, 43, 45)), Fault.JOB, "exit code 3"),  # a program's own
        (HostDiagnosis(xids=(31, 48)), Fault.HOST, "Xid 48"),
        (HostDiagnosis(ecc_errors=2), Fault.HOST, "2 uncorrected ECC errors"),
        (HostDiagnosis(root=DiskFacts(is_full=True)), Fault.HOST, "the root disk is full"),
        (HostDiagnosis(root=DiskFacts("read-only")), Fault.HOST, "root disk: read-only"),
        (HostDiagnosis(data=DiskFacts("I/O error")), Fault.HOST, "data: I/O error"),
        (HostDiagnosis(data=DiskFacts(is_full=True)), Fault.JOB, "exit code 3; the data volume is full"),
        (HostDiagnosis(unreachable=("AWS",)), Fault.HOST, "AWS does not respond"),
        (HostDiagnosis(is_terminating=True, gpus_missing=8), Fault.INTERRUPTED, "exit code 3"),
    ],
)
def test_classify_returns_the_cause(seen: HostDiagnosis, fault: Fault, says: str) -> None:
    verdict = faults.classify(CRASH, seen)
    assert verdict.fault is fault
    assert says in verdict.reason


def test_a_server_that_is_away_is_no_fault_here_unless_the_host_is_cut_off() -> None:
    assert faults.classify(AWAY, HostDiagnosis()).fault is Fault.DEPENDENCY
    assert faults.classify(AWAY, HostDiagnosis(unreachable=("the metadata service",))).fault is Fault.HOST
    assert faults.classify(AWAY, HostDiagnosis(data=DiskFacts(is_full=True))).fault is Fault.DEPENDENCY


JOB, HOST = FaultVerdict(Fault.JOB, "x"), FaultVerdict(Fault.HOST, "x")
GONE = FaultVerdict(Fault.DEPENDENCY, "x")


def test_the_jobs_own_faults_are_counted_and_bounded() -> None:
    tally, steps = FailureCounts(), []
    for _ in range(3):
        tally, step = faults.respond(tally, JOB, 2, has_progressed=False, has_started=True)
        steps.append((step.next, step.delay_seconds))
    assert steps == [(NextAction.RETRY, 5.0), (NextAction.RETRY, 10.0), (NextAction.FAILED, 0.0)]
    tally, step = faults.respond(FailureCounts(2), JOB, 2, has_progressed=True, has_started=True)
    assert (tally.failures, step.next) == (1, NextAction.RETRY)


def test_a_hosts_fault_and_an_end_that_is_announced_cost_the_job_nothing() -> None:
    for verdict, expected in [
        (HOST, NextAction.REPLACE),
        (FaultVerdict(Fault.INTERRUPTED, "x"), NextAction.STOP),
    ]:
        tally, step = faults.respond(FailureCounts(2, 3), verdict, 2, has_progressed=False, has_started=True)
        assert (tally, step.next) == (FailureCounts(2, 3), expected)


def test_a_server_that_stays_away_is_tried_from_another_host_after_half_an_hour() -> None:
    tally, waited = FailureCounts(2), 0.0
    for _ in range(MAX_UNAVAILABLE_TRIES):
        tally, step = faults.respond(tally, GONE, 2, has_progressed=False, has_started=False)
        assert step.next is NextAction.RETRY
        waited += step.delay_seconds
    assert tally.failures == 2
    assert 25 * 60 < waited < 40 * 60
    _, step = faults.respond(tally, GONE, 2, has_progressed=False, has_started=False)
    assert (step.next, step.verdict.fault) == (NextAction.REPLACE, Fault.HOST)


def test_a_start_resets_the_unavailable_tries() -> None:
    tally, _ = faults.respond(
        FailureCounts(0, MAX_UNAVAILABLE_TRIES), JOB, 2, has_progressed=False, has_started=True
    )
    assert tally == FailureCounts(1, 0)


def test_pauses_grow_to_a_bound() -> None:
    pauses = [faults.retry_delay(n) for n in range(1, 2000)]
    assert pauses[:3] == [5.0, 10.0, 20.0]
    assert max(pauses) == pauses[-1] == 300.0


def git(*arguments: str) -> FailedRun:
    """Really run git; return the failure as the trainer sees it."""
    with pytest.raises(CommandError) as caught:
        SystemHost().run(
            ["env", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=http:file", "git", *arguments], 60
        )
    return faults.of_error(caught.value)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """A repository in which to fetch."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "code")], check=True)
    return str(tmp_path / "code")


def test_git_cannot_find_the_server(empty: str) -> None:
    assert git("-C", empty, "fetch", "http://nobody.invalid/x.git", "0" * 40).is_dependency_unavailable


def test_git_is_turned_away_at_the_door(empty: str) -> None:
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))  # and does not listen
        port = unserved.getsockname()[1]
        assert git("-C", empty, "fetch", f"http://127.0.0.1:{port}/x.git", "0" * 40).is_dependency_unavailable


@pytest.mark.parametrize(
    ("status", "is_away"),
    [(401, False), (403, False), (404, False), (429, True), (500, True), (502, True), (503, True)],
)
def test_git_reports_a_status(empty: str, status: int, is_away: bool) -> None:
    class Answer(Handler):
        def respond(self, body: bytes) -> None:
            self.send_error(status)

    with served(Answer) as port:
        found = git("-C", empty, "fetch", f"http://127.0.0.1:{port}/x.git", "0" * 40)
    assert found.is_dependency_unavailable is is_away, found.description


def test_git_reports_no_response(empty: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unresponsive:

        def hang_up() -> None:
            connection, _ = unresponsive.accept()
            connection.recv(4096)
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        url = f"http://127.0.0.1:{unresponsive.getsockname()[1]}/x.git"
        assert git("-C", empty, "fetch", url, "0" * 40).is_dependency_unavailable


def test_a_repository_that_is_there_and_says_no_is_the_jobs(empty: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    for arguments in (
        ["init", "-q", str(source)],
        ["-C", str(source), "commit", "-qm", "m", "--allow-empty"],
    ):
        named = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *named, *arguments], check=True, env=env)
    assert not git("-C", empty, "fetch", f"file://{source}", "0" * 40).is_dependency_unavailable
    assert not git("-C", empty, "fetch", f"file://{tmp_path}/none", "0" * 40).is_dependency_unavailable
    assert not git("-C", empty, "checkout", "0" * 40).is_dependency_unavailable


@pytest.mark.parametrize(
    "said",
    [
        "fatal: Authentication failed for 'https://git.example.com/x/'",
        "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
        "remote: Repository not found.\nfatal: repository 'https://git.example.com/x/' not found",
        "fatal: remote error: upload-pack: not our ref 00\nfatal: the remote end hung up unexpectedly",
        "ERROR: Could not find a version that satisfies the requirement torch==99",
        "fatal: unable to write new index file: No space left on device",
    ],
)
def test_a_refusal_is_the_jobs(said: str) -> None:
    assert not faults.of_error(CommandError("git: exit 128: …", said)).is_dependency_unavailable


@pytest.mark.parametrize(
    "said",
    [
        "error: RPC failed; curl 56 GnuTLS recv error (-54)\nfetch-pack: unexpected disconnect while reading",
        "fatal: unable to access 'https://git.example.com/': Failed to connect to git.example.com port 443",
        "error: Failed to fetch: `https://index.example.com/simple/`\n  Caused by: operation timed out",
        'Error response from daemon: Get "https://r.example.com/v2/": dial tcp: lookup r: no such host',
        "error: HTTP status server error (503 Service Unavailable) for url",
    ],
)
def test_silence_is_not(said: str) -> None:
    assert faults.of_error(CommandError("git: exit 128: …", said)).is_dependency_unavailable


def test_other_errors_are_the_jobs_unless_they_say_otherwise() -> None:
    assert not faults.of_error(AgentError("nonsense")).is_dependency_unavailable
    assert not faults.of_error(FileNotFoundError(2, "No such file", "train.py")).is_dependency_unavailable
    assert faults.of_error(DependencyUnavailableError("no volume yet")).is_dependency_unavailable


def test_an_exit_code_is_described() -> None:
    assert faults.of_exit(3).description == "exit code 3"
    assert faults.of_exit(-9).description == "killed by signal 9 (often: out of memory)"
    assert faults.of_exit(-11).description == "killed by signal 11"
