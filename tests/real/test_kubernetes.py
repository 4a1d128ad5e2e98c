"""A Job's very container command in a real container: told, lost, started again, and what its codes mean."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import kubelet
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with kubelet.engine() as found:
        yield found


def test_it_resumes_after_a_notice_and_after_a_loss(place: Path) -> None:
    here = kubelet.training(place)
    found = kubelet.played(here)
    assert found["codes"] == [75, 137, 0]
    assert found["verdicts"] == ["FailIndex", "FailIndex", "done"]
    first, after_notice, lost = found["begins"]
    assert first == 0
    assert after_notice >= 60  # the step at which it was told, and none less
    assert lost >= 175  # the last checkpoint before it was lost
    assert found["last"] == str(kubelet.STEPS)
    [deadline] = here.deadlines()
    assert 0 < deadline - time.time() < 110


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("exit 0", 0, "done"),
        ("exit 3", 3, "counted"),
        ("exit 75", 1, "counted"),
        ("kill -9 $$", 137, "counted"),
        ('touch "$GPU_SPOT_DONE"; exit 1', 0, "done"),
        (
            "test $GPU_SPOT_JOB = resnet -a -w $GPU_SPOT_CHECKPOINTS -a -d $GPU_SPOT_SCRATCH -a -w $HOME",
            0,
            "done",
        ),
    ],
)
def test_what_an_end_means(place: Path, script: str, code: int, says: str) -> None:
    here = kubelet.job(place, "sh", "-c", script)
    found = here.wait(here.start())
    assert (found, here.verdict(found)) == (code, says)


@pytest.mark.parametrize(("program", "code"), [("/nowhere/train", 127), ("/etc", 126)])
def test_a_command_that_cannot_be_run_ends_the_job(place: Path, program: str, code: int) -> None:
    here = kubelet.job(place, program)
    found = here.wait(here.start())
    assert (found, here.verdict(found)) == (code, "FailJob")


def test_one_that_is_deaf_is_killed_when_its_time_is_up(place: Path) -> None:
    here = kubelet.job(
        place, "sh", "-c", 'trap "" TERM; touch "$GPU_SPOT_CHECKPOINTS/up"; while :; do sleep 1; done'
    )
    pod = here.start()
    wait_until(lambda: list(here.checkpoints.glob("*/up")))
    found = here.end(pod, grace=2)
    assert (found, here.verdict(found, disrupted=True)) == (137, "FailIndex")


def test_a_failure_after_a_notice_is_not_counted(place: Path) -> None:
    script = 'trap "exit 9" TERM; touch "$GPU_SPOT_CHECKPOINTS/up"; while :; do sleep 0.1; done'
    here = kubelet.job(place, "sh", "-c", script)
    pod = here.start()
    wait_until(lambda: list(here.checkpoints.glob("*/up")))
    found = here.end(pod)
    assert (found, here.verdict(found)) == (75, "FailIndex")
