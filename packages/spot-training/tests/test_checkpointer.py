"""Checkpoints on a disk with faults: the newest valid one is restored, or a clear error is raised."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spot_training import Checkpointer, InUseError, MismatchError, RestoreError, SaveError
from support.disk import STALE, Clock, Disk, Gone, content, dying_at, let_go, read, refusing
from support.ranks import Thread, together


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, log = Keep(logging.WARNING), logging.getLogger("spot_training")
    log.addHandler(handler)
    yield lines
    log.removeHandler(handler)
    assert all("\n" not in line for line in lines)


def run(folder: Path, *steps: int, disk: Disk | None = None, **options: object) -> Checkpointer:
    """A process that saves some steps and ends."""
    one = Checkpointer(folder, files=disk, retry_policy=Clock().retry_policy(), **options)  # type: ignore[arg-type]
    try:
        one.restore()
        for step in steps:
            one.save(step, content(f"at {step}"), {"epoch": step // 10})
    finally:
        let_go(one)
    return one


def found(folder: Path, **options: object) -> tuple[int, str] | None:
    one = Checkpointer(folder, retry_policy=Clock().retry_policy(), **options)  # type: ignore[arg-type]
    try:
        return read(one)
    finally:
        let_go(one)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_the_newest_is_found_with_its_meta_and_the_oldest_go(folder: Path) -> None:
    assert found(folder) is None
    run(folder, 10, 20, 30, 40, keep=2)
    assert names(folder) == ["step-000000000030", "step-000000000040"]
    one = Checkpointer(folder)
    saved = one.restore()
    assert saved is not None
    assert (saved.step, saved.meta, saved.world_size) == (40, {"epoch": 4}, 1)
    let_go(one)


@pytest.mark.parametrize("keeps_renames", [True, False])
def test_a_machine_that_stops_at_any_touch_loses_nothing_that_was_saved(
    folder: Path, keeps_renames: bool
) -> None:
    number, was, ends = 0, (10, "at 10"), 0
    while True:
        number += 1
        shutil.rmtree(folder, ignore_errors=True)
        run(folder, 10)
        disk = Disk(dying_at(number))
        try:
            run(folder, 20, 30, disk=disk, keep=1)
        except Gone:
            disk.lose_power(keeps_renames=keeps_renames)
            ends += 1
        else:
            break
        now = found(folder)
        assert now in {was, (20, "at 20"), (30, "at 30")}, f"touch {number}"
        assert names(folder)
        # … and the next start saves as if nothing had been, also what is there already.
        run(folder, 30, 40, keep=1)
        assert found(folder) == (40, "at 40")
        assert not [
            path.name for path in folder.iterdir() if path.name.startswith((".new", ".gone", ".repl"))
        ]
    assert ends > 40


def test_a_step_that_is_there_is_replaced_and_never_missing(folder: Path) -> None:
    """Whoever could not read the newest one comes to its step again."""
    for number in range(1, 200):
        shutil.rmtree(folder, ignore_errors=True)
        run(folder, 10)
        one = Checkpointer(folder, files=(disk := Disk()), retry_policy=Clock().retry_policy())
        one._store.acquire()
        disk.at, disk.count = dying_at(number), 0
        try:
            one.save(10, content("again"))
        except Gone:
            let_go(one)
            assert found(folder) in {(10, "at 10"), (10, "again")}
        else:
            let_go(one)
            assert found(folder) == (10, "again")
            assert number > 10
            return
    raise AssertionError("it never got to its end")


def damage(place: Path, kind: str) -> None:
    file = place / "rank-00000" / "inner" / "weights"
    match kind:
        case "flipped":
            text = bytearray(file.read_bytes())
            text[100] ^= 1
            file.write_bytes(text)
        case "truncated":
            os.truncate(file, 7)
        case "missing":
            file.unlink()
        case "no manifest":
            (place / "manifest.json").unlink()
        case "torn manifest":
            os.truncate(place / "manifest.json", 40)
        case "changed manifest":
            path = place / "manifest.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "step": 7}))


DAMAGE = {
    "flipped": "wrong checksum",
    "truncated": "has 7 of 5000 bytes",
    "missing": "rank-00000/inner/weights is missing",
    "no manifest": "no manifest",
    "torn manifest": "manifest.json is damaged",
    "changed manifest": "manifest.json is damaged",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_logged_and_the_previous_one_is_restored(
    folder: Path, kind: str, said: list[str]
) -> None:
    run(folder, 10, 20)
    damage(folder / "step-000000000020", kind)
    assert found(folder) == (10, "at 10")
    [line] = said
    assert "step-000000000020 is skipped" in line
    assert DAMAGE[kind] in line
    assert found(folder) == (10, "at 10")  # logged once: the damaged one is quarantined
    assert len(said) == 1


def test_only_damaged_checkpoints_raise_a_restore_error(folder: Path) -> None:
    run(folder, 10, 20)
    for name in names(folder):
        damage(folder / name, "flipped")
    with pytest.raises(RestoreError, match=r"none of step-000000000020, step-000000000010 can be loaded"):
        found(folder)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("kind", ["make", "open", "sync", "rename"])
def test_a_save_that_is_refused_raises_one_line_and_the_one_before_stays(
    folder: Path, error: int, kind: str
) -> None:
    run(folder, 10)
    one = Checkpointer(folder, files=(disk := Disk()), retry_policy=Clock().retry_policy())
    one.restore()
    disk.at = refusing(error, kind)
    with pytest.raises(SaveError, match=os.strerror(error)) as caught:
        one.save(20, content("at 20"))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    disk.at = Disk().at
    one.save(30, content("at 30"))  # once there is room again
    let_go(one)
    assert found(folder) == (30, "at 30")
    assert names(folder) == ["step-000000000010", "step-000000000030"]


def test_what_a_link_leads_to_is_in_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "vocabulary").mkdir()
    (tmp_path / "vocabulary" / "words").write_text("a b")

    def write(stage: Path) -> None:
        content("at 10")(stage)
        (stage / "model").write_text("weights")
        (stage / "latest").symlink_to(stage / "model")
        (stage / "tokens").symlink_to(tmp_path / "vocabulary")

    one = Checkpointer(folder)
    one.save(10, write)
    let_go(one)
    shutil.rmtree(tmp_path / "vocabulary")
    two = Checkpointer(folder)
    saved = two.restore()
    let_go(two)
    assert saved is not None
    part = saved.part()
    assert ((part / "latest").read_text(), (part / "tokens" / "words").read_text()) == ("weights", "a b")


def test_a_disk_that_is_full_in_truth(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts a small file system: run as root")
    (tmp_path / "small").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path / "small")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine may not mount a file system")
    try:
        one = Checkpointer(tmp_path / "small" / "c", retry_policy=Clock().retry_policy())
        one.restore()
        one.save(10, content("at 10"))
        with pytest.raises(SaveError, match="No space left on device"):
            one.save(20, lambda path: (path / "big").write_bytes(bytes(2 << 20)))
        let_go(one)
        assert found(tmp_path / "small" / "c") == (10, "at 10")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "small")], check=True)
        with pytest.raises(SaveError, match="Read-only file system"):
            found(tmp_path / "small" / "c")
    finally:
        subprocess.run(["umount", str(tmp_path / "small")], check=True)


@pytest.mark.parametrize("error", [STALE, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.parametrize("kind", ["list", "make", "open", "sync", "read", "rename"])
def test_a_file_system_that_is_gone_for_a_minute_is_waited_for(
    folder: Path, error: int, kind: str, said: list[str]
) -> None:
    run(folder, 10)
    clock = Clock()
    one = Checkpointer(folder, files=(disk := Disk()), retry_policy=clock.retry_policy())
    one.restore()
    refuse, back = refusing(error, kind), clock() + 60

    def at(count: int, what: str, path: Path) -> None:
        if clock() < back:
            refuse(count, what, path)

    disk.at = at
    one.save(20, content("at 20"))
    let_go(one)
    assert clock() >= back
    assert found(folder) == (20, "at 20")
    assert len(said) == 2  # gone, and back
    assert os.strerror(error) in said[0]


def test_a_file_that_could_not_be_flushed_is_written_again(folder: Path) -> None:
    """After an error of fsync the kernel may have dropped the pages: to flush again would prove nothing."""
    one = Checkpointer(folder, files=(disk := Disk()), retry_policy=Clock().retry_policy())
    one.restore()
    written: list[Path] = []

    def write(part: Path) -> None:
        written.append(part)
        content("x")(part)

    def at(count: int, what: str, path: Path) -> None:
        if what == "sync" and path.name == "weights" and len(written) == 1:
            raise OSError(errno.EIO, "I/O error")

    disk.at = at
    one.save(10, write)
    let_go(one)
    assert len(written) == 2


def test_one_that_is_gone_for_longer_ends_the_save_in_time(folder: Path) -> None:
    clock = Clock()
    one = Checkpointer(folder, files=(disk := Disk()), retry_policy=clock.retry_policy())
    one.restore()
    disk.at, started = refusing(STALE, "sync"), clock()
    with pytest.raises(SaveError):
        one.save(10, content("at 10"))
    assert 100 < clock() - started <= 120
    let_go(one)


def test_a_rename_that_was_carried_out_but_not_answered_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def unanswered(self: Path, target: Path) -> Path:
        rename(self, target)
        return rename(self, target)  # what the client sends again: there is no such file any more

    one = Checkpointer(folder, retry_policy=Clock().retry_policy())
    one.restore()
    monkeypatch.setattr(Path, "rename", unanswered)
    one.save(10, content("at 10"))
    monkeypatch.undo()
    let_go(one)
    assert found(folder) == (10, "at 10")


OTHER = """
import sys
from spot_training import Checkpointer
one = Checkpointer(sys.argv[1]); one.restore()
one.save(5, lambda path: (path / "state").write_text("other"))
print("in", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_by_name_until_the_first_has_ended(folder: Path, said: list[str]) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(folder)], **pipes)  # type: ignore[call-overload]
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(InUseError, match=rf"in use by process {other.pid} on .* since 20"):
            found(folder)
        assert f"process {other.pid}" in said[0]
        other.kill()  # no goodbye: its lock goes with it
        other.wait()
        one = Checkpointer(folder)
        saved = one.restore()
        assert saved is not None
        assert saved.step == 5
        let_go(one)
    finally:
        other.kill()
        other.communicate()


def test_a_process_that_lost_the_lock_does_not_commit(folder: Path) -> None:
    """A machine that reconnects to EFS after its lease has expired."""
    old = Checkpointer(folder, retry_policy=Clock().retry_policy())
    old.restore()
    old.save(10, content("at 10"))
    let = old._store._lock  # type: ignore[attr-defined]
    os.close(let._handle)
    let._handle = None
    new = Checkpointer(folder, retry_policy=Clock().retry_policy())
    new.restore()
    new.save(20, content("new"))
    with pytest.raises(InUseError, match="taken over by process"):
        old.save(30, content("old"))
    new.save(40, content("new"))
    let_go(new)
    assert found(folder) == (40, "new")
    assert "step-000000000030" not in names(folder)


def test_without_locks_the_later_one_wins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    first, second = (Checkpointer(folder, retry_policy=Clock().retry_policy()) for _ in range(2))
    first.restore()
    second.restore()
    with pytest.raises(InUseError, match="taken over"):
        first.save(10, content("first"))
    second.save(10, content("second"))
    assert "file system without locks" in said[0]


def test_one_that_cannot_be_read_today_is_waited_for(folder: Path) -> None:
    run(folder, 10, 30)
    one = Checkpointer(folder, files=(disk := Disk()), retry_policy=Clock().retry_policy(), keep=1)

    def at(count: int, what: str, path: Path) -> None:
        if what == "read" and "step-000000000030" in str(path):
            raise OSError(errno.EIO, "I/O error")

    disk.at = at
    with pytest.raises(
        RestoreError, match=r"step-000000000030 cannot be read: OSError: .* it stays: start again"
    ):
        one.restore()
    let_go(one)
    assert names(folder) == ["step-000000000010", "step-000000000030"]
    assert found(folder) == (30, "at 30")


def test_a_save_without_a_restore_removes_incomplete_files(folder: Path) -> None:
    (folder / ".new-step-000000000010.1" / "rank-00000").mkdir(parents=True)
    one = Checkpointer(folder)
    one.save(10, content("at 10"))
    let_go(one)
    assert found(folder) == (10, "at 10")


def test_another_model_is_refused_by_both_names(folder: Path) -> None:
    run(folder, 10, fingerprint="resnet50")
    with pytest.raises(
        MismatchError, match="is of another model: its fingerprint is resnet50, and this model's vit"
    ):
        found(folder, fingerprint="vit")
    assert found(folder, fingerprint="resnet50") == (10, "at 10")


def save_as_rank(folder: Path, failing: int = -1, **options: object) -> object:
    def act(ranks: Thread) -> object:
        def write(path: Path) -> None:
            if ranks.rank == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            content(f"rank {ranks.rank} of {ranks.size}")(path)

        one = Checkpointer(folder, ranks=ranks, retry_policy=Clock().retry_policy(), **options)  # type: ignore[arg-type]
        try:
            saved = one.restore()
            one.save(10 if saved is None else saved.step + 10, write)
            return (
                None
                if saved is None
                else [(saved.part(n) / "state").read_text() for n in range(saved.world_size)]
            )
        finally:
            if ranks.rank == 0:
                let_go(one)

    return act


def test_rank_zero_commits_after_all_and_all_find_the_same(folder: Path) -> None:
    assert together(3, save_as_rank(folder)) == [None] * 3
    every = [f"rank {number} of 3" for number in range(3)]
    assert together(3, save_as_rank(folder)) == [every] * 3


def test_a_rank_that_fails_fails_all_and_nothing_counts(folder: Path) -> None:
    together(2, save_as_rank(folder))
    ends = together(2, save_as_rank(folder, failing=1))
    assert [type(one) for one in ends] == [SaveError] * 2
    assert "rank 1: OSError: [Errno 28] No space left on device" in str(ends[0])
    assert names(folder) == ["step-000000000010"]


def test_a_file_that_only_one_rank_reads_is_damaged_for_all(folder: Path, said: list[str]) -> None:
    together(2, save_as_rank(folder))
    together(2, save_as_rank(folder))
    (folder / "step-000000000020" / "rank-00001" / "state").write_text("else")
    assert together(2, save_as_rank(folder)) == [["rank 0 of 2", "rank 1 of 2"]] * 2
    assert "step-000000000020 is skipped: rank-00001/state has 4 of 11 bytes" in said[0]


def test_another_world_is_refused_or_shared_out(folder: Path) -> None:
    together(2, save_as_rank(folder))
    [refused] = together(1, save_as_rank(folder))
    assert "was saved by 2 processes, and can be loaded only by as many, not by 1" in str(refused)
    assert together(1, save_as_rank(folder, reshard=True)) == [["rank 0 of 2", "rank 1 of 2"]]


def test_a_mistake_in_the_script_is_raised_as_it_is(folder: Path) -> None:
    def write(path: Path) -> None:
        raise TypeError("not a tensor")

    one = Checkpointer(folder)
    with pytest.raises(TypeError, match="not a tensor"):
        one.save(1, write)
    let_go(one)
