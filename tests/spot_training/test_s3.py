"""Checkpoints in S3, on moto: the manifest is put last, with a conditional write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from spot_training import Checkpointer, InUseError, RestoreError, SaveError, SpotTrainingError
from spot_training.storage.s3 import S3Store
from tests.models import moto
from tests.spot_training.disk import content

URL = "s3://kept/jobs/a"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with moto():
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


def test_a_bucket_that_is_not_there_is_one_line(s3: Any, tmp_path: Path) -> None:
    with pytest.raises(SaveError, match=r"s3://gone: .*NoSuchBucket") as caught:
        Checkpointer(store=S3Store("s3://gone", s3, tmp_path)).restore()
    assert "\n" not in str(caught.value)
    with pytest.raises(SpotTrainingError, match="has no bucket"):
        S3Store("s3://", s3, tmp_path)
