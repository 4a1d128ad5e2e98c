"""Storage that is full, read-only or does not answer: a real small file system, calls that really block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spot_training import Checkpointer, Interval, Notice, Progress, SaveError, Spot
from spot_training.storage import calls
from spot_training.storage.calls import RetryPolicy
from spot_training.storage.files import hashed, take_digest
from support.disk import Clock, Disk, content, let_go, read
from support.small_disk import remount_read_only, small_disk

SIZE = 1 << 20


def block(path: Path) -> None:
    (path / "weights").write_bytes(os.urandom(SIZE))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def checkpointer(folder: Path, **options: object) -> Checkpointer:
    return Checkpointer(folder, retry_policy=Clock().retry_policy(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("megabytes", "fitting"), [(5, 4), (4, 3), (3, 2)])
def test_older_ones_make_room_and_one_always_stays(
    tmp_path: Path, megabytes: int, fitting: int, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "small", megabytes * 1024 - 100) as small:
        one = checkpointer(small / "c", keep=3)
        one.restore()
        seen = []
        for step in range(10, 110, 10):
            one.save(step, block)
            seen.append(names(small / "c"))
        let_go(one)
        assert seen[-1][-1] == "step-000000000100"
        assert len(seen[-1]) == min(3, fitting)
        assert all(seen)
        lines = [record.getMessage() for record in caplog.records if "fit" in record.getMessage()]
        if fitting < 4:
            assert re.search(rf"only {fitting} checkpoints of 1\.0[56] MB fit, keep=3", lines[0])
        again = checkpointer(small / "c")
        saved = again.restore()
        assert saved is not None
        assert saved.step == 100
        let_go(again)


def test_where_one_fits_it_is_never_given_up_for_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "small", 1300) as small:
        one = checkpointer(small / "c")
        one.restore()
        one.save(10, block)
        assert re.search(
            r"only 1 checkpoint of 1\.0[56] MB fits", caplog.text
        )  # random numbers vary by bytes
        for step in (20, 30):
            with pytest.raises(SaveError, match="No space left on device"):
                one.save(step, block)
        let_go(one)
        assert names(small / "c") == ["step-000000000010"]


def test_a_checkpoint_that_grows_makes_room_after_the_disk_was_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "small", 4 * 1024) as small:
        one = checkpointer(small / "c", keep=3)
        one.restore()
        one.save(10, block)
        one.save(20, block)
        one.save(30, lambda path: (path / "weights").write_bytes(bytes(int(2.5 * SIZE))))
        let_go(one)
        assert names(small / "c") == ["step-000000000020", "step-000000000030"]
        assert "is full: step-000000000010 is removed" in caplog.text


def test_a_damaged_one_goes_first(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 3500) as small:
        one = checkpointer(small / "c", keep=3)
        for step in (10, 20, 30):
            one.save(step, block)
        let_go(one)
        os.truncate(small / "c" / "step-000000000030" / "rank-00000" / "weights", SIZE - 1)
        one = checkpointer(small / "c", keep=3)
        one.restore()
        one.save(40, block)
        let_go(one)
        assert names(small / "c") == [f"step-0000000000{step}" for step in (10, 20, 40)]


SCRIPT = """
import os, sys
from pathlib import Path
from spot_training import Spot

def write(folder):
    try:
        (folder / "weights").write_bytes(os.urandom(1 << 20))
    except OSError:
        raise RuntimeError("unexpected pos 64 vs 0")  # in another library's words

spot = Spot(steps=4)
spot.restore()
for step in range(3):
    spot.save(step + 1, write)
with spot.ending():
    spot.save(4, write, last=True)
spot.finish(4)
Path("model").write_text("exported")
"""


def play(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_full_disk_costs_no_finished_training_its_export(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1300) as small:
        done = play(tmp_path, GPU_SPOT_CHECKPOINTS=str(small / "c"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model").read_text() == "exported"
    lines = done.stderr.splitlines()
    assert re.search(r"only 1 checkpoint of 1\.0[56] MB fits", lines[0])
    assert [line for line in lines[1:] if "No space left on device" not in line] == []
    assert "last step not saved; the script continues to its end" in lines[-1]


def test_a_read_only_disk_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 4000) as small:
        remount_read_only(small)
        done = play(tmp_path, GPU_SPOT_CHECKPOINTS=str(small / "c"))
        assert done.returncode == 1
        assert done.stderr.startswith("spot_training.errors.SaveError: ")
        assert "Read-only file system" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        with_traceback = play(tmp_path, GPU_SPOT_CHECKPOINTS=str(small / "c"), SPOT_TRAINING_TRACEBACK="1")
        assert "Traceback" in with_traceback.stderr


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A named pipe that blocks its reader until the test ends, as a server that does not answer would."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    answer(path)


def answer(pipe: Path) -> None:
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    for thread in threading.enumerate():
        if thread.name == "spot_training storage":
            end = time.monotonic() + 10
            while thread.is_alive() and time.monotonic() < end:
                writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
                thread.join(0.05)
                os.close(writer)


def blocking(pipe: Path, *kinds: str) -> Callable[[int, str, Path], None]:
    def at(count: int, kind: str, path: Path) -> None:
        if kind in kinds:
            pipe.read_bytes()

    return at


def hanging(folder: Path, disk: Disk, seconds: float) -> Checkpointer:
    return Checkpointer(folder, files=disk, retry_policy=RetryPolicy(hang_seconds=seconds))


@pytest.mark.parametrize("kind", ["list", "make", "sync", "rename", "read"])
def test_a_storage_that_does_not_answer_costs_the_save_and_not_the_training(
    tmp_path: Path, pipe: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(calls, "SLOW_SECONDS", 0.1)
    disk = Disk()
    one = hanging(tmp_path / "c", disk, 0.3)
    one.restore()
    one.save(10, content("at 10"))
    disk.at = blocking(pipe, kind)
    with pytest.raises(SaveError, match="no answer from the storage for") as caught:
        one.save(20, content("at 20"))
    assert "\n" not in str(caught.value)
    assert "no answer from the storage for 0 s; waiting for up to 0 s" in caplog.text
    started = time.monotonic()
    with pytest.raises(SaveError, match="still no answer"):
        one.save(30, content("at 30"))
    assert time.monotonic() - started < 0.2, "a second call must not wait, nor start another thread"
    disk.at = Disk().at
    answer(pipe)
    one.save(40, content("at 40"))  # once it answers again
    let_go(one)
    again = checkpointer(tmp_path / "c")
    assert read(again) == (40, "at 40")
    let_go(again)
    assert not list((tmp_path / "c").glob(".new-*"))


def test_a_start_on_such_a_storage_ends_with_a_line(tmp_path: Path, pipe: Path) -> None:
    one = hanging(tmp_path / "c", Disk(blocking(pipe, "list")), 0.3)
    with pytest.raises(SaveError, match="no answer from the storage"):
        one.restore()


def test_at_a_notice_it_is_abandoned_before_the_deadline(
    tmp_path: Path, pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(calls, "QUIET_SECONDS", 0.2)
    disk, wall = Disk(), Clock()
    notice = Notice(environment={}, clock=wall)
    one = hanging(tmp_path / "c", disk, 600)
    spot = Spot(
        checkpointer=one, notice=notice, interval=Interval(per_hour=1), progress=Progress(environment={})
    )
    spot.restore()
    disk.at = blocking(pipe, "sync")
    failed: list[Exception] = []

    def save() -> None:
        try:
            spot.save(10, content("x"), last=True)
        except SaveError as error:
            failed.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    os.kill(os.getpid(), 15)
    saving.join(1)
    assert saving.is_alive(), "there are 100 seconds left"
    wall.sleep(90)
    saving.join(10)
    assert "no answer from the storage" in str(failed[0])
    notice.close()


def test_a_slow_storage_that_makes_progress_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_POLL_SECONDS", 0.02)
    one = hanging(tmp_path / "c", Disk(), 0.5)

    def write(folder: Path) -> None:
        with hashed(folder / "weights") as file:
            for _ in range(10):
                time.sleep(0.1)
                file.write(b"x" * 100)

    one.save(10, write)
    let_go(one)
    assert names(tmp_path / "c") == ["step-000000000010"]


def test_a_hashed_file_is_not_read_again_unless_it_changed(tmp_path: Path) -> None:
    reads: list[str] = []
    disk = Disk(lambda count, kind, path: reads.append(path.name) if kind == "read" else None)
    one = Checkpointer(tmp_path / "c", files=disk, retry_policy=Clock().retry_policy())

    def write(folder: Path) -> None:
        for name in ("same", "changed"):
            with hashed(folder / name) as file:
                file.write(b"x" * 100_000)
        with (folder / "changed").open("r+b") as file:
            file.write(b"y")

    one.save(10, write)
    assert "same" not in reads
    assert "changed" in reads
    let_go(one)
    again = checkpointer(tmp_path / "c")
    assert again.restore() is not None
    let_go(again)


def test_a_digest_is_returned_once(tmp_path: Path) -> None:
    with hashed(tmp_path / "file") as file:
        file.write(memoryview(b"content"))
    status = (tmp_path / "file").stat()
    assert take_digest(tmp_path / "file", status) is not None
    assert take_digest(tmp_path / "file", status) is None
