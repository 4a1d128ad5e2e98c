"""Checkpoints in S3, on moto: the manifest is put last, with a conditional write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from spot_training import Checkpoint, Checkpointer, InUseError, RestoreError, SaveError, SpotTrainingError
from spot_training.errors import OtherRunError
from spot_training.identity import TrainingRun
from spot_training.levels.local_level import LocalLevel
from spot_training.storage.retention import CheckpointRetention
from spot_training.storage.s3 import S3Store
from support.disk import Clock, content

URL = "s3://kept/jobs/a"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="kept")
        yield client


def checkpointer(s3: Any, tmp_path: Path) -> Checkpointer:
    return Checkpointer(store=S3Store(URL, s3, tmp_path), keep=2)


def keys(s3: Any) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket="kept").get("Contents", ())]


def state(s3: Any, step: int) -> str:
    """Return the key of a checkpoint's file, which is below a prefix of its save."""
    [key] = [key for key in keys(s3) if f"{step:012d}/" in key and key.endswith("/rank-00000/state")]
    return key


def test_the_newest_that_is_whole_is_found_and_the_oldest_go(
    s3: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = checkpointer(s3, tmp_path)
    assert one.restore() is None
    for step in (10, 20, 30):
        one.save(step, content(f"at {step}"), {"epoch": step})
    assert not [key for key in keys(s3) if "000010" in key]
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert (saved.step, saved.meta) == (30, {"epoch": 30})
    assert (saved.part() / "inner" / "weights").read_text() == "at 30" * 1000
    s3.put_object(Bucket="kept", Key=state(s3, 30), Body=b"?")
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert saved.step == 20
    assert "jobs/a/step-000000000030/manifest.json" not in keys(s3)
    s3.delete_object(Bucket="kept", Key=state(s3, 20))
    with pytest.raises(RestoreError, match="none of step-000000000020 can be loaded"):
        checkpointer(s3, tmp_path).restore()
    assert "/rank-00000/state is missing" in caplog.text


def test_what_has_no_manifest_is_no_checkpoint(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000090/rank-00000/state", Body=b"half")
    one = checkpointer(s3, tmp_path)
    assert one.restore() is None
    one.save(90, content("at 90"))
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert saved.step == 90


def test_what_killed_saves_left_is_removed_and_what_is_committed_stays(s3: Any, tmp_path: Path) -> None:
    checkpointer(s3, tmp_path).save(10, content("at 10"))
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000090/0123/rank-00000/state", Body=b"half")
    s3.put_object(Bucket="kept", Key="jobs/a/notes/step", Body=b"the user's")
    before = set(keys(s3))
    assert checkpointer(s3, tmp_path).restore() is not None
    removed = {"jobs/a/step-000000000090/0123/rank-00000/state"}
    assert before - set(keys(s3)) == removed


def test_a_save_that_is_refused_leaves_what_was_committed(s3: Any, tmp_path: Path) -> None:
    first = checkpointer(s3, tmp_path)
    first.restore()
    first.save(10, content("first"))
    second = checkpointer(s3, tmp_path)
    second.open()  # without what it has: as if it had not been able to read it
    before = keys(s3)
    with pytest.raises(InUseError, match="step-000000000010 exists already"):
        second.save(10, content("second"))
    assert keys(s3) == before
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert (saved.part() / "inner" / "weights").read_text() == "first" * 1000


@pytest.mark.parametrize("owner", [S3Store, CheckpointRetention])
def test_a_save_that_fails_after_its_commit_loses_no_file(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type
) -> None:
    one = checkpointer(s3, tmp_path)
    one.save(10, content("at 10"))
    name = "_put" if owner is S3Store else "removable"  # the answer is lost, or what follows fails
    call = getattr(owner, name)

    def fail(*arguments: Any, **options: Any) -> None:
        call(*arguments, **options)
        raise RuntimeError("Connection closed by peer")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises((SaveError, RuntimeError), match="closed by peer"):
            one.save(20, content("at 20"))
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert (saved.step, (saved.part() / "state").read_text()) == (20, "at 20")


def test_only_files_of_the_manifest_are_fetched(s3: Any, tmp_path: Path) -> None:
    checkpointer(s3, tmp_path).save(10, content("at 10"))
    below = state(s3, 10).removesuffix("rank-00000/state")
    for hostile in (
        "../../../../authorized_keys",
        "rank-00000/../../../../authorized_keys",
        "rank-00000/more",
    ):
        s3.put_object(Bucket="kept", Key=f"{below}{hostile}", Body=b"ssh-ed25519 AAAA")
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert not list(tmp_path.rglob("authorized_keys"))
    assert not (saved.part() / "more").exists()


class Failing:
    """A client that fails some calls, then calls the real one."""

    def __init__(self, s3: Any, name: str, error: Exception, times: int = 1) -> None:
        self._s3, self._name, self._error, self.times = s3, name, error, times

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == self._name and self.times:
                self.times -= 1
                raise self._error
            return getattr(self._s3, name)(*arguments, **options)

        return call


def client_error(status: int) -> ClientError:
    body: Any = {"Error": {"Code": "X", "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(body, "GetObject")


TRANSIENT = [client_error(503), client_error(429), EndpointConnectionError(endpoint_url="https://s3")]


@pytest.mark.parametrize("error", TRANSIENT, ids=str)
@pytest.mark.parametrize("call", ["get_object", "put_object", "upload_file", "download_file"])
def test_after_a_network_error_a_call_is_tried_again(
    s3: Any, tmp_path: Path, call: str, error: Exception
) -> None:
    one = checkpointer(s3, tmp_path)
    one.save(10, content("at 10"))
    one.close()
    failing = Failing(s3, call, error)
    store = S3Store(URL, failing, tmp_path)
    again = Checkpointer(store=store, keep=2, retry_policy=Clock().retry_policy())
    saved = again.restore()
    assert saved is not None
    assert saved.step == 10
    again.save(20, content("at 20"))
    assert failing.times == 0


def test_what_is_denied_is_not_tried_again(s3: Any, tmp_path: Path) -> None:
    checkpointer(s3, tmp_path).save(10, content("at 10"))
    failing = Failing(s3, "download_file", client_error(403), times=99)
    with pytest.raises(RestoreError, match=r"step-000000000010 cannot be read: .*GetObject"):
        Checkpointer(store=S3Store(URL, failing, tmp_path), keep=2).restore()
    assert failing.times == 98


def test_the_later_of_two_wins_and_the_earlier_finds_out(s3: Any, tmp_path: Path) -> None:
    first, second = checkpointer(s3, tmp_path), checkpointer(s3, tmp_path)
    first.restore()
    second.restore()
    second.save(10, content("second"))
    with pytest.raises(InUseError, match=r"s3://kept/jobs/a was taken over by process"):
        first.save(20, content("first"))


def test_an_existing_manifest_is_not_overwritten(s3: Any, tmp_path: Path) -> None:
    one = checkpointer(s3, tmp_path)
    one.restore()
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000010/manifest.json", Body=b"another's")
    with pytest.raises(InUseError, match="step-000000000010 exists already"):
        one.save(10, content("mine"))


def test_damaged_ones_are_not_forgotten(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer(s3, tmp_path).save(10, content("at 10"))
    s3.put_object(Bucket="kept", Key=state(s3, 10), Body=b"?")
    for _ in range(2):  # the second start does not begin at step 0 either
        with pytest.raises(RestoreError, match=r"000010 can be loaded; .*SPOT_TRAINING_START_OVER=damaged"):
            checkpointer(s3, tmp_path).restore()
    assert "jobs/a/step-000000000010/manifest.json.damaged" in keys(s3)
    monkeypatch.setenv("SPOT_TRAINING_START_OVER", "damaged")
    again = checkpointer(s3, tmp_path)
    assert again.restore() is None
    again.save(10, content("again"))
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert (saved.step, saved.part().joinpath("state").read_text()) == (10, "again")


def test_another_runs_checkpoint_stays(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = TrainingRun(script="a.py"), TrainingRun(script="b.py")

    def restore(run: TrainingRun) -> Checkpoint | None:
        return Checkpointer(store=S3Store(URL, s3, tmp_path), run=run).restore()

    Checkpointer(store=S3Store(URL, s3, tmp_path), run=first).save(10, content("first's"))
    before = keys(s3)
    with pytest.raises(OtherRunError, match=r"script a\.py there, b\.py here"):
        restore(second)
    monkeypatch.setenv("SPOT_TRAINING_START_OVER", first.id)
    with pytest.raises(SpotTrainingError, match="cannot be set aside in an object store: use another locat"):
        restore(second)
    monkeypatch.delenv("SPOT_TRAINING_START_OVER")
    assert keys(s3) == before
    monkeypatch.setenv("SPOT_TRAINING_TAKE_OVER", first.id)
    saved = restore(second)
    assert saved is not None
    assert (saved.step, saved.run["id"]) == (10, first.id)


def test_a_step_is_not_replaced_and_a_closed_training_saves_again(s3: Any, tmp_path: Path) -> None:
    one = checkpointer(s3, tmp_path)
    one.save(10, content("a"))
    one.save(10, content("b"), replace=True)
    one.close()
    one.save(20, content("c"))
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert saved.step == 20
    body = s3.get_object(Bucket="kept", Key=state(s3, 10))["Body"].read()
    assert body == b"a"


def test_a_bucket_that_is_not_there_is_one_line(s3: Any, tmp_path: Path) -> None:
    with pytest.raises(SaveError, match=r"s3://gone: .*NoSuchBucket") as caught:
        Checkpointer(store=S3Store("s3://gone", s3, tmp_path)).restore()
    assert "\n" not in str(caught.value)
    with pytest.raises(SpotTrainingError, match="has no bucket"):
        S3Store("s3://", s3, tmp_path)


def test_a_checkpoint_of_this_machine_arrives_as_it_is(s3: Any, tmp_path: Path) -> None:
    far = checkpointer(s3, tmp_path)
    local = LocalLevel(tmp_path / "local", far)
    assert far.restore(local) is None
    local.save(10, content("at 10"), {"epoch": 1})
    assert not [key for key in keys(s3) if "step-" in key]
    assert local.copy_up(10) == 5005
    local.save(20, content("at 20"), {"epoch": 2})
    local.close()
    again = checkpointer(s3, tmp_path)
    saved = again.restore(LocalLevel(tmp_path / "local", again))
    assert saved is not None
    assert (saved.step, saved.meta) == (20, {"epoch": 2})
    second = checkpointer(s3, tmp_path)
    saved = second.restore(LocalLevel(tmp_path / "second", second))
    assert saved is not None
    assert (saved.step, saved.meta, (saved.part() / "state").read_text()) == (10, {"epoch": 1}, "at 10")


def test_the_end_of_a_process_removes_what_it_has_transferred(tmp_path: Path) -> None:
    script = (
        f"from spot_training.storage.s3 import S3Store as S; assert S('{URL}', '', '.')._scratch.exists()"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
