"""The look at a host: real disks where they may be made, NVML's double, and AWS that keeps silent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from userdata.agent.machine import disks
from userdata.agent.machine.disks import check_writable
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work.failures.faults import DiskFacts, FailedRun, Fault, classify
from userdata.agent.work.failures.inspection import GpuStatus, Inspector


def test_a_disk_that_takes_a_write_is_fine_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    assert check_writable(tmp_path) == ("", False)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(place)], check=False)
    if made.returncode:
        pytest.skip("mount is not permitted here: only root may make a disk that is full or read-only")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_full_and_no_error(small: Path) -> None:
    assert check_writable(small) == ("", False)
    (small / "half").write_bytes(bytes(10 * 2**20))
    assert check_writable(small) == ("", True)  # too little is left
    with pytest.raises(OSError, match="No space left"):
        (small / "rest").write_bytes(bytes(20 * 2**20))
    assert check_writable(small) == ("", True)


def test_a_disk_that_became_read_only_is_an_error(small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    assert check_writable(small) == (f"{small}: Read-only file system", False)


def test_a_disk_that_does_not_answer_is_an_error_without_a_wait(tmp_path: Path) -> None:
    error, is_full = check_writable(tmp_path, 0.2, "import time; time.sleep(600)")
    assert (error, is_full) == (f"{tmp_path}: no response for 0 s", False)


def test_what_the_kernel_says_is_passed_on(tmp_path: Path) -> None:
    for code, error in [(5, "Input/output error"), (117, "Structure needs cleaning")]:  # EIO; xfs, EUCLEAN
        assert check_writable(tmp_path, script=f"import sys; sys.exit({code})") == (
            f"{tmp_path}: {error}",
            False,
        )
    missing = tmp_path / "none"
    assert check_writable(missing) == (f"{missing}: No such file or directory", False)


def test_the_agent_that_cannot_start_a_process_has_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert disks.check_writable(tmp_path) == (f"{tmp_path}: No such file or directory", False)


Make = Callable[..., Inspector]


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock) -> Make:
    def inspector(
        nvml: FakeNvml | None = None,
        answers: dict[str, Callable[[], bool]] | None = None,
        is_terminating: Callable[[], bool] = lambda: False,
        keep: Callable[[], None] = lambda: None,
        expected: int = 2,
    ) -> Inspector:
        gpus = Gpus(nvml, expected) if nvml else None
        return Inspector(gpus, (tmp_path, tmp_path), answers or {}, is_terminating, clock, keep)

    return inspector


def blamed(inspector: Inspector) -> str:
    """Why the host is to blame; empty: it is not."""
    verdict = classify(FailedRun("x"), inspector.diagnose())
    return verdict.reason if verdict.fault is Fault.HOST else ""


def test_a_sound_host_is_not_to_blame(make: Make) -> None:
    assert blamed(make(FakeNvml([FakeGpu("GPU-1"), FakeGpu("GPU-2")]))) == ""
    assert blamed(make()) == ""  # accelerators of another maker


def test_a_gpu_off_the_bus_is_the_hosts(make: Make) -> None:
    nvml = FakeNvml([FakeGpu("GPU-1"), FakeGpu("GPU-2")])
    inspector = make(nvml)
    assert blamed(inspector) == ""
    nvml.gpus[1].error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert "1 of 2 GPUs do not respond" in blamed(inspector)


def test_fewer_gpus_than_there_should_be_or_a_driver_that_does_not_answer_is_the_hosts(make: Make) -> None:
    assert "1 of 2 GPUs" in blamed(make(FakeNvml([FakeGpu("GPU-1")])))
    assert "2 of 2 GPUs" in blamed(make(FakeNvml([], init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)))


def test_one_answer_in_error_is_not(make: Make) -> None:
    nvml = FakeNvml([FakeGpu("GPU-1"), FakeGpu("GPU-2")])
    inspector = make(nvml)
    inspector.check_gpus()
    nvml.gpus[0].error = pynvml.NVML_ERROR_UNKNOWN
    assert inspector.check_gpus() == GpuStatus()
    nvml.gpus[0].error = 0
    assert blamed(inspector) == ""


def test_xid_and_ecc_errors_count_once_whenever_they_came(make: Make) -> None:
    gpu = FakeGpu("GPU-1", ecc=3)  # from before the run
    nvml = FakeNvml([gpu, FakeGpu("GPU-2")])
    inspector = make(nvml)
    nvml.xids = [(gpu, 31), (gpu, 79)]
    inspector.check_gpus()
    gpu.ecc = 5
    inspector.check_gpus()
    seen = inspector.diagnose()
    assert (seen.xids, seen.ecc_errors) == ((31, 79), 2)
    assert blamed(inspector) == ""  # the next run starts from zero


def test_a_gpu_works_if_any_process_does(make: Make) -> None:
    nvml = FakeNvml([FakeGpu("GPU-1"), FakeGpu("GPU-2", {7: 1}, [(7, 100, 3)])])
    inspector = make(nvml)
    assert inspector.check_gpus() == GpuStatus(is_busy=True)
    assert inspector.check_gpus() == GpuStatus(is_busy=False)  # no newer sample


def test_three_failed_probes_mean_unreachable_and_the_lease_is_renewed(make: Make, clock: FakeClock) -> None:
    polls: list[float] = []
    silent = make(answers={"AWS": lambda: False}, keep=lambda: polls.append(clock.monotonic()))
    started_at = clock.monotonic()
    assert "AWS does not respond" in blamed(silent)
    assert clock.monotonic() - started_at == 20.0
    assert len(polls) >= 3
    tries = iter([False, False, True])
    assert blamed(make(answers={"AWS": lambda: next(tries)})) == ""


def test_the_instance_that_is_taken_is_not_looked_at(make: Make) -> None:
    broken = FakeNvml([], init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert make(broken, is_terminating=lambda: True).diagnose().is_terminating
    later = iter([False, True])
    assert make(broken, is_terminating=lambda: next(later)).diagnose().is_terminating


def test_a_disk_by_itself_is_seen(make: Make, tmp_path: Path) -> None:
    seen = Inspector(None, (tmp_path / "none", None), {}, lambda: False, FakeClock()).diagnose()
    assert seen.root.error.endswith("No such file or directory")
    assert seen.data == DiskFacts()


def test_a_driver_that_changed_under_the_open_handle_is_the_hosts_fault(make: Make) -> None:
    """An upgrade: the handle goes on, and each new process of the job fails."""
    nvml = FakeNvml([FakeGpu("GPU-1")])
    inspector = make(nvml, expected=1)
    assert inspector.check_gpus() == GpuStatus()
    nvml.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert inspector.check_gpus() == GpuStatus()
    assert "1 of 1 GPUs" in blamed(inspector)


def test_a_new_process_is_asked_about_the_real_driver() -> None:
    """None is installed here: a process says so, within its time."""
    assert not Gpus(pynvml, 1).opens_again()
