"""``supervise.sh`` and ``checkout.sh`` of a rendered Job, run: one trainer at a time, and what an end means.

The monotonic clock is a file, and a pause takes 50 ms; the clock of the file server is that of the files.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from infra.kubernetes import jobs
from infra.kubernetes.jobs import EXHAUSTED_EXIT_CODE, LEASE_SECONDS, STOPPED_EXIT_CODE
from tests.kubernetes.entries import of_kind, rendered
from tests.kubernetes.local_pods import (
    CHECKOUT,
    DEAF_TRAINER,
    DOUBLES,
    TRAINER,
    TRAINS,
    LocalPod,
    lines,
    trainer,
)
from tests.kubernetes.test_policies import verdict
from tests.served import Handler, served
from tests.waiting import wait_until
from userdata.agent.lease import renewal, store

SHORT_SLEEP: Final = "#!/bin/sh\nexec /bin/sleep 0.05\n"
FULL_DISK: Final = """#!/bin/sh
echo "Filesystem 1024-blocks Used Available Capacity Mounted on"
echo "/dev/nvme0n1p1 1000 0 $(cat {}) 1% /"
"""


@dataclass
class Pods:
    """Pods that share ``checkpoints``; ``folder`` has the clock and the programs that are replaced."""

    folder: Path
    started: list[LocalPod] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checkpoints = self.folder / "efs"
        self.programs = self.folder / "programs"
        for path in (self.checkpoints, self.programs):
            path.mkdir()
        self.program("sleep", SHORT_SLEEP)
        self.set_clock(1000)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text, "utf-8")
        (self.programs / name).chmod(0o755)

    def set_clock(self, seconds: float) -> None:
        new = self.folder / "uptime.new"
        new.write_text(f"{seconds:.2f} 0.00\n", "utf-8")
        new.rename(self.folder / "uptime")

    def new(self, entry: dict[str, Any] | None = None, kind: str = "Job", **variables: str) -> LocalPod:
        """Return a pod of the entry's Job, not started."""
        manifest = of_kind(rendered(job={**trainer(), **(entry or {})}), kind)
        spec = manifest["spec"]
        if kind != "Job":
            spec = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        pod = LocalPod(
            self.folder / f"pod-{len(self.started)}",
            self.checkpoints,
            spec["template"],
            {"PATH": f"{self.programs}:{os.environ['PATH']}", **variables},
            {"/proc/uptime": str(self.folder / "uptime")},
        )
        self.started.append(pod)
        return pod

    @property
    def trains(self) -> list[str]:
        """The names of the pods whose trainer started."""
        return lines(self.checkpoints / "resnet" / TRAINS)

    @property
    def doubles(self) -> list[str]:
        return lines(self.checkpoints / "resnet" / DOUBLES)

    def wait_for_trainer(self, pod: LocalPod) -> None:
        wait_until(lambda: pod.folder.name in self.trains or pod.code is not None)
        assert pod.folder.name in self.trains, pod.log()

    def wait_for_log(self, pod: LocalPod, text: str) -> None:
        wait_until(lambda: text in pod.log())

    def lease(self, token: int, rank: int = 0) -> Path:
        return self.checkpoints / "resnet" / ".lease" / str(rank) / str(token)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    result = Pods(tmp_path)
    yield result
    for pod in result.started:
        pod.kill()


def test_the_lease_lasts_as_long_as_that_of_instances() -> None:
    assert LEASE_SECONDS == store.LEASE_SECONDS
    # Those of supervise.sh: half, and a twelfth less.
    assert (LEASE_SECONDS / 2, LEASE_SECONDS / 12) == (
        renewal.STOP_AFTER_SECONDS,
        renewal.KILL_MARGIN_SECONDS,
    )


def test_the_pod_of_another_revision_waits_for_the_lease_of_the_folder(pods: Pods) -> None:
    first = pods.new().start()
    pods.wait_for_trainer(first)
    second = pods.new({"revision": "f" * 40}).start()
    pods.wait_for_log(second, "waiting up to 900 s for the lease")
    assert pods.trains == ["pod-0"]
    first.stop()
    assert first.wait() == STOPPED_EXIT_CODE
    pods.wait_for_trainer(second)
    assert pods.doubles == []
    assert pods.lease(1).read_text("utf-8").startswith("superseded by 2")
    second.crash()
    assert second.wait() == 3
    assert pods.lease(2).read_text("utf-8") == "released\n"


def has_trained(pods: Pods, count: int) -> bool:
    return len(pods.trains) == count


def test_of_many_pods_at_once_one_trains(pods: Pods) -> None:
    several = [pods.new().start() for _ in range(5)]
    for count in range(1, 6):
        wait_until(partial(has_trained, pods, count))
        [running] = [pod for pod in several if pod.folder.name == pods.trains[-1]]
        running.stop()
        assert running.wait() == STOPPED_EXIT_CODE
    assert (sorted(pods.trains), pods.doubles) == ([f"pod-{number}" for number in range(5)], [])


def test_the_lease_of_a_lost_node_lasts_until_its_end_by_the_file_servers_clock(pods: Pods) -> None:
    lost = pods.new().start()
    pods.wait_for_trainer(lost)
    lost.kill()
    old = time.time() - LEASE_SECONDS + 20
    os.utime(pods.lease(1), (old, old))
    second = pods.new().start()
    pods.wait_for_log(second, "waiting up to")
    pods.set_clock(5000)  # a node's clock alone ends the wait, not the lease
    assert (second.wait(), pods.trains) == (STOPPED_EXIT_CODE, ["pod-0"])
    old = time.time() - LEASE_SECONDS - 2
    os.utime(pods.lease(1), (old, old))
    pods.wait_for_trainer(pods.new().start())
    assert pods.trains == ["pod-0", "pod-2"]


def test_a_pod_without_the_file_system_stops_its_trainer_before_the_leases_end(pods: Pods) -> None:
    pod = pods.new().start()
    pods.wait_for_trainer(pod)
    pod.cut_storage()
    pods.set_clock(1000 + 65)
    assert pod.wait() == STOPPED_EXIT_CODE
    notice = json.loads((pod.folder / "run" / "notice.json").read_text("utf-8"))
    assert 30 < notice["deadline"] - time.time() <= 45
    assert pods.lease(1).read_text("utf-8").startswith("held")


def test_a_deaf_trainer_is_killed_before_the_leases_end(pods: Pods) -> None:
    pod = pods.new(trainer(script=DEAF_TRAINER)).start()
    pods.wait_for_trainer(pod)
    pod.cut_storage()
    pods.set_clock(1000 + 65)
    pods.wait_for_log(pod, "stops before another pod may train")
    assert pod.code is None
    pods.set_clock(1000 + 110)
    assert pod.wait() == STOPPED_EXIT_CODE


def test_under_a_superseded_lease_a_pod_ends_at_once_and_is_not_counted(pods: Pods) -> None:
    pod = pods.new(trainer(script=DEAF_TRAINER)).start()
    pods.wait_for_trainer(pod)
    pods.lease(1).write_text("superseded by 2\n", "utf-8")
    assert pod.wait() == STOPPED_EXIT_CODE


def test_a_command_that_fails_because_of_the_lease_is_not_counted(pods: Pods) -> None:
    fails = 'echo "superseded by 2" >"$GPU_SPOT_LEASE"; exit 1'
    assert pods.new(trainer(script=fails)).start().wait() == STOPPED_EXIT_CODE


def test_the_ranks_of_a_run_have_a_lease_each(pods: Pods) -> None:
    entry = {
        "nodes": 2,
        "capacity": {"kind": "mixed-asg", "target": 1, "max": 2, "instanceTypes": ["g6.xlarge"]},
    }
    script = 'cat "$GPU_SPOT_LEASE"; echo "$GPU_SPOT_LEASE"'
    for rank in ("0", "1"):
        pod = pods.new(
            {**trainer(script=script), **entry}, "TrainingRuntime", JOB_COMPLETION_INDEX=rank
        ).start("node")
        assert pod.wait() == 0
        assert f".lease/{rank}/1" in pod.log("node")


def test_experiments_have_a_folder_and_a_lease_each(pods: Pods) -> None:
    entry = {"environment": {}, "matrix": {"SEED": [1, 2]}, **trainer(script='echo "$GPU_SPOT_LEASE"')}
    table = of_kind(rendered(job=entry), "ConfigMap")["data"]
    said = []
    for index in ("0", "1"):
        pod = pods.new(entry, JOB_COMPLETION_INDEX=index)
        pod.add_file("experiments", index, table[index].replace("/dltraining", str(pod.folder / "data")))
        assert pod.start().wait() == 0
        said += pod.log().splitlines()[-1:]
    assert len({*said}) == 2
    assert all(line.endswith("/.lease/0/1") for line in said)


def test_a_pod_that_fills_its_nodes_disk_fails_before_it_is_evicted(pods: Pods) -> None:
    """An eviction has the condition DisruptionTarget: it would be repeated for ever."""
    available = pods.folder / "available"
    available.write_text("300", "utf-8")
    pods.program("df", FULL_DISK.format(available))
    pod = pods.new().start()
    pods.wait_for_trainer(pod)
    available.write_text("110", "utf-8")
    code = pod.wait()
    assert (code, verdict(of_kind(rendered(), "Job"), code=code)) == (1, "counted")
    assert "fills the node's disk: 11 % are free, less than 12 %" in pod.log()
    # Of a disk that was so full before it started it is not the cause.
    after = pods.new().start()
    pods.wait_for_trainer(after)
    after.crash()
    assert after.wait() == 3


@pytest.fixture
def host() -> Iterator[str]:
    """Return the URL of a git host that answers each request with 503."""

    class Unavailable(Handler):
        def respond(self, body: bytes) -> None:
            self.send_error(503)

    with served(Unavailable) as port:
        yield f"http://127.0.0.1:{port}/resnet.git"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for call in (
        ["init", "--quiet", str(path)],
        ["-C", str(path), *author, "commit", "--quiet", "--allow-empty", "--message=one"],
    ):
        subprocess.run(["git", *call], check=True)
    return path


def checked_out(pods: Pods, repository: object, revision: str = "HEAD", seconds: int = 0) -> LocalPod:
    variables = {
        "GPU_SPOT_REPOSITORY": str(repository),
        "GPU_SPOT_REVISION": revision,
        "GPU_SPOT_OUTAGE_SECONDS": str(seconds),
    }
    return pods.new(None, **variables).start(CHECKOUT)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1/resnet.git", "http://host.invalid/resnet.git"])
def test_a_git_host_that_does_not_answer_counts_nothing(pods: Pods, host: str, url: str) -> None:
    pod = checked_out(pods, url or host)
    assert pod.wait() == STOPPED_EXIT_CODE, pod.log(CHECKOUT)
    assert "the git host did not answer for 0 s; not counted" in pod.log(CHECKOUT)


def test_a_revision_or_repository_that_is_not_there_is_counted(pods: Pods, repository: Path) -> None:
    for pod in (checked_out(pods, repository, "f" * 40), checked_out(pods, repository / "not-there")):
        assert pod.wait() == 1
        assert "does not answer" not in pod.log(CHECKOUT)
    assert checked_out(pods, repository).wait() == 0


def test_an_outage_is_waited_for_longer_and_longer(pods: Pods) -> None:
    tries = pods.folder / "tries"
    pods.program(
        "git",
        f'#!/bin/sh\ncase "$*" in *fetch*) echo x >>{tries}; test "$(wc -l <{tries})" -ge 6 && exit 0\n'
        'echo "fatal: unable to access: Could not resolve host: example.com" >&2; exit 128;; esac\n',
    )
    pod = checked_out(pods, "https://example.com/resnet.git", seconds=jobs.OUTAGE_SECONDS)
    assert pod.wait() == 0
    said = [line for line in pod.log(CHECKOUT).splitlines() if "next try" in line]
    assert [line.partition("next try in ")[2].split()[0] for line in said] == ["5", "10", "20", "40", "60"]


def counted(failures: int, **variables: str) -> dict[str, str]:
    """Return what the Job controller's annotation and label say to a pod of index 3."""
    by_controller = {"GPU_SPOT_FAULTS": str(failures), "GPU_SPOT_RUN": "uid", "JOB_COMPLETION_INDEX": "3"}
    return {**by_controller, **variables}


def test_the_pod_after_the_last_failure_that_is_allowed_fails_the_job(pods: Pods) -> None:
    """Whatever the failures were, such as kills for memory, which no script sees."""
    pod = pods.new(None, **counted(6)).start(CHECKOUT)
    assert pod.wait() == EXHAUSTED_EXIT_CODE
    assert "the job has failed" in pod.log(CHECKOUT)


@pytest.mark.parametrize(("failures", "expected"), [(4, 3), (5, EXHAUSTED_EXIT_CODE)])
def test_the_last_failure_that_is_allowed_fails_the_job(pods: Pods, failures: int, expected: int) -> None:
    pod = pods.new(None, **counted(failures)).start()
    pods.wait_for_trainer(pod)
    pod.crash()
    assert pod.wait() == expected
    assert pods.lease(1).read_text("utf-8") == "released\n"
    checkout = pods.new(None, **counted(failures, GPU_SPOT_REPOSITORY="/not-there")).start(CHECKOUT)
    assert checkout.wait() == (EXHAUSTED_EXIT_CODE if failures == 5 else 1)


@pytest.mark.parametrize("code", [STOPPED_EXIT_CODE, EXHAUSTED_EXIT_CODE])
def test_a_commands_own_code_is_a_failure_like_any_other(pods: Pods, code: int) -> None:
    assert pods.new(trainer(script=f"exit {code}"), **counted(0)).start().wait() == 1


def test_the_lease_of_a_pod_with_a_counted_failure_has_ended(pods: Pods) -> None:
    """Its kubelet reported its end, or there would be the condition DisruptionTarget."""
    killed = pods.new(None, **counted(0)).start()
    pods.wait_for_trainer(killed)
    killed.kill()  # for memory: nothing releases its lease
    for failures, more in ((0, {}), (1, {"GPU_SPOT_RUN": "other"}), (1, {"JOB_COMPLETION_INDEX": "4"})):
        unsure = pods.new(None, **counted(failures, **more)).start()
        pods.wait_for_log(unsure, "waiting up to")
        unsure.stop()
        assert unsure.wait() == STOPPED_EXIT_CODE
    assert len(pods.trains) == 1
    pods.wait_for_trainer(pods.new(None, **counted(1)).start())


def test_a_deaf_command_is_killed_before_its_grace_is_over_and_its_lease_released(pods: Pods) -> None:
    pod = pods.new(trainer(script=DEAF_TRAINER)).start()
    pods.wait_for_trainer(pod)
    pod.stop()
    [renewed] = (pod.folder / "run").rglob("lease")
    wait_until(renewed.with_name("stopped").exists)
    for seconds in (1040, 1080, 1106):  # it renews its lease meanwhile
        pods.set_clock(seconds)
        wait_until(partial(lambda now: renewed.read_text("utf-8") == f"{now}\n", seconds))
    assert pod.code is None
    pods.set_clock(1107)
    assert pod.wait() == STOPPED_EXIT_CODE
    assert "did not end within 107 s of SIGTERM" in pod.log()
    assert pods.lease(1).read_text("utf-8") == "released\n"


SURVIVORS: Final[dict[str, Any]] = {"nodes": {"min": 1, "max": 2}}
REPORTS: Final = "printf '%s' '{}' >\"$GPU_SPOT_TELL\"; exit 0"


def node(pods: Pods, index: int, script: str, faults: int = 0, run: str = "uid") -> LocalPod:
    """Start a pod of nodes that go on without each other."""
    by_controller = counted(faults, JOB_COMPLETION_INDEX=str(index), GPU_SPOT_RUN=run)
    return pods.new({**trainer(script=script), **SURVIVORS}, **by_controller).start()


def test_nodes_of_a_job_share_a_lease_that_another_job_waits_for(pods: Pods) -> None:
    nodes = [node(pods, index, TRAINER) for index in (0, 1)]
    for pod in nodes:
        pods.wait_for_trainer(pod)
    nodes[0].stop()
    assert nodes[0].wait() == STOPPED_EXIT_CODE
    assert pods.lease(1).read_text("utf-8") == "held by the nodes of uid\n"  # the other node trains
    before = time.time() - 60
    os.utime(pods.lease(1), (before, before))
    wait_until(lambda: pods.lease(1).stat().st_mtime > before)  # renewed by the node that is left
    successor = node(pods, 2, TRAINER)
    pods.wait_for_trainer(successor)
    nodes[1].kill()
    successor.kill()
    other = node(pods, 0, TRAINER, run="other")
    pods.wait_for_log(other, "waiting up to")
    assert len(pods.trains) == 3
    old = time.time() - LEASE_SECONDS - 2
    os.utime(pods.lease(1), (old, old))
    pods.wait_for_trainer(other)
    assert pods.lease(1).read_text("utf-8") == "superseded by 2, held by the nodes of other\n"
    other.stop()
    assert other.wait() == STOPPED_EXIT_CODE


def test_a_node_under_a_superseded_lease_ends_and_is_not_counted(pods: Pods) -> None:
    pod = node(pods, 0, DEAF_TRAINER)
    pods.wait_for_trainer(pod)
    pods.lease(1).write_text("superseded by 2, held by the nodes of other\n", "utf-8")
    assert pod.wait() == STOPPED_EXIT_CODE


def test_the_node_with_rank_0_ends_the_run_and_the_others_wait_for_it(pods: Pods) -> None:
    early = node(pods, 1, REPORTS.format('{"step": 9, "finished": true, "rank": 12}'))
    stopped = node(pods, 2, REPORTS.format('{"finished": true, "rank": 1}'))
    for pod in (early, stopped):
        pods.wait_for_log(pod, "waits for the one with rank 0")
    stopped.stop()
    assert (stopped.wait(), early.code) == (STOPPED_EXIT_CODE, None)
    assert node(pods, 0, REPORTS.format('{"step": 9, "finished": true}')).wait() == 0
    assert early.wait() == 0
    assert node(pods, 3, "exit 9").wait() == 0  # it comes when all is done


@pytest.mark.parametrize(
    ("report", "faults", "expected"),
    [("", 4, 1), ('{"step": 9}', 5, EXHAUSTED_EXIT_CODE), ('{"error": "no \\"finished\\":true"}', 0, 1)],
)
def test_exit_code_0_of_a_node_that_reports_no_end_is_a_failure(
    pods: Pods, report: str, faults: int, expected: int
) -> None:
    assert node(pods, 0, REPORTS.format(report), faults).wait() == expected
    assert not list((pods.checkpoints / "resnet").glob(".done-*"))
