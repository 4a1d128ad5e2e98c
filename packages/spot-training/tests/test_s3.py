"""Checkpoints in S3, on moto: the manifest is put last, with a conditional write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from spot_training import Checkpoint, Checkpointer, InUseError, RestoreError, SaveError, SpotTrainingError
from spot_training.errors import OtherRunError
from spot_training.identity import TrainingRun
from spot_training.levels.local_level import LocalLevel
from spot_training.storage.s3 import S3Store
from support.disk import content

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


def test_the_newest_that_is_whole_is_found_and_the_oldest_go(s3: Any, tmp_path: Path) -> None:
    one = checkpointer(s3, tmp_path)
    assert one.restore() is None
    for step in (10, 20, 30):
        one.save(step, content(f"at {step}"), {"epoch": step})
    assert not [key for key in keys(s3) if "000010" in key]
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert (saved.step, saved.meta) == (30, {"epoch": 30})
    assert (saved.part() / "inner" / "weights").read_text() == "at 30" * 1000
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000030/rank-00000/state", Body=b"?")
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert saved.step == 20
    assert "jobs/a/step-000000000030/manifest.json" not in keys(s3)
    s3.delete_object(Bucket="kept", Key="jobs/a/step-000000000020/rank-00000/state")
    with pytest.raises(RestoreError, match="none of step-000000000020 can be loaded"):
        checkpointer(s3, tmp_path).restore()


def test_what_has_no_manifest_is_no_checkpoint(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000090/rank-00000/state", Body=b"half")
    one = checkpointer(s3, tmp_path)
    assert one.restore() is None
    one.save(90, content("at 90"))
    saved = checkpointer(s3, tmp_path).restore()
    assert saved is not None
    assert saved.step == 90


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
    s3.put_object(Bucket="kept", Key="jobs/a/step-000000000010/rank-00000/state", Body=b"?")
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
    body = s3.get_object(Bucket="kept", Key="jobs/a/step-000000000010/rank-00000/state")["Body"].read()
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
