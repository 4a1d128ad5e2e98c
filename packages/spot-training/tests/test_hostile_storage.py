"""Storage that fails at the worst moment, or has what another wrote; children and the end of a process."""

from __future__ import annotations

import contextvars
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spot_training import Checkpointer, Notice, RestoreError
from spot_training.storage import manifest as manifests
from spot_training.storage.files import Files
from spot_training.storage.manifest import CheckpointManifest, File, parse
from support.disk import Clock, Disk, content

BROKEN_PATHS = ["../x", "/etc/passwd", "rank-00000", "rank-00000/../x", "rank-00000//x", "manifest.json", ""]


@pytest.mark.parametrize("epochs", [9, 10, 11, 14, 101])
@pytest.mark.parametrize("key", [int, float, str, lambda n: n % 2 == 0])
def test_a_mapping_may_have_any_keys_that_json_knows(
    tmp_path: Path, epochs: int, key: Callable[[int], object]
) -> None:
    one = Checkpointer(tmp_path)
    one.save(1, content("x"), {"accuracy": {key(epoch): 0.5 for epoch in range(epochs)}})
    one.close()
    saved = Checkpointer(tmp_path).restore()
    assert saved is not None
    assert saved.meta["accuracy"].keys() == {_json_key(key(epoch)) for epoch in range(epochs)}


def _json_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


@pytest.mark.parametrize("path", BROKEN_PATHS)
def test_a_file_outside_of_the_ranks_directories_is_refused(path: str) -> None:
    text = CheckpointManifest(1, 1, "", {}, {path: File(1, "0")}).to_text()
    with pytest.raises(ValueError, match=r"names the file .*, which must be rank-00000/"):
        parse(text)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_a_transient_error_at_the_owner_record_is_tried_again(
    tmp_path: Path, number: int, operation: str
) -> None:
    failed: list[Path] = []

    def fail(_: int, what: str, path: Path) -> None:
        if what == operation and "owner" in path.name and not failed:
            failed.append(path)
            raise OSError(number, os.strerror(number), str(path))

    one = Checkpointer(tmp_path, files=Disk(fail), retry_policy=Clock().retry_policy())
    one.restore()
    one.save(1, content("x"))
    assert failed
    assert one.last_step == 1


def test_a_checkpoint_that_cannot_be_read_is_an_error_and_stays(tmp_path: Path) -> None:
    class Unreadable(Files):
        def touch(self, operation: str, path: Path) -> None:
            if operation == "read" and "step-000000000002/rank" in str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))

    one = Checkpointer(tmp_path)
    for step in (1, 2):
        one.save(step, content(f"{step}"))
    one.close()
    with pytest.raises(RestoreError, match="step-000000000002 cannot be read: PermissionError"):
        Checkpointer(tmp_path, files=Unreadable()).restore()
    saved = Checkpointer(tmp_path).restore()
    assert saved is not None
    assert saved.step == 2


def test_a_manifest_that_could_not_be_read_again_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Checkpointer(tmp_path)
    one.save(1, content("1"))
    monkeypatch.setattr(manifests, "_checksum", lambda _: os.urandom(4).hex())
    with pytest.raises(ValueError, match="damaged"):
        one.save(2, content("2"))
    one.close()
    monkeypatch.undo()
    saved = Checkpointer(tmp_path).restore()
    assert saved is not None
    assert saved.step == 1


def test_the_writer_has_the_context_of_its_caller(tmp_path: Path) -> None:
    variable, seen = contextvars.ContextVar("variable", default="none"), []
    variable.set("the caller's")
    Checkpointer(tmp_path).save(1, lambda folder: seen.append(variable.get()))
    assert seen == ["the caller's"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_can_be_terminated_and_the_training_is_not() -> None:
    notices = [Notice(environment={}) for _ in range(2)]
    try:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join(10)
        assert child.exitcode == -signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)
        assert [notice.received for notice in notices] == [True, True]
    finally:
        for notice in reversed(notices):
            notice.close()


AT_EXIT = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from spot_training import Checkpointer
from spot_training.levels.background import BackgroundSaver
import spot_training.storage.s3
saved = Checkpointer(sys.argv[1])
saved.restore()
def write(folder):
    time.sleep(0.5)  # the script has ended by then
    if sys.argv[2] == "fails":
        raise OSError("no such volume")
    with ThreadPoolExecutor() as executor:  # as boto3 has
        executor.submit((folder / "weights").write_text, "x").result()
BackgroundSaver().start(lambda: saved.save(2, write))
if sys.argv[2] == "raises":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("what", "status"), [("ends", 0), ("raises", 3), ("fails", 0)])
def test_a_save_in_the_background_is_carried_out_when_the_script_ends(
    tmp_path: Path, what: str, status: int
) -> None:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(tmp_path), what], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == status, ended.stderr
    saved = Checkpointer(tmp_path).restore()
    if what == "fails":
        assert saved is None
        assert "spot_training: the last save failed: " in ended.stderr
        assert "no such volume" in ended.stderr
    else:
        assert saved is not None
        assert saved.step == 2
