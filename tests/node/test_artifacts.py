"""Uploads of artifacts to S3 (moto), by the library used on instances and in a real thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts.agent.config import ScheduledRun
from tests import models
from tests.node import configs
from tests.node.units import UnitHost
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.aws import clients
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.errors import LeaseLostError
from userdata.agent.tasks.groups.scheduled import delete_old_runs
from userdata.agent.work.training.artifacts import Artifacts

TARGET = "s3://results/resnet/"


class QuickClock(SystemClock):
    """Real time, but pauses are short and long ones pass at once."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        super().sleep(0.01)


class Bench:
    def __init__(self, tmp: Path, client: Any) -> None:
        self.client, self.clock = client, QuickClock()
        self.folder, self.record = tmp / "artifacts" / "resnet", tmp / "artifacts" / ".resnet.json"
        self.folder.mkdir(parents=True)
        self.uploaded: list[str] = []
        self.refused: dict[str, int] = {}
        """How often what has this name is refused."""
        self.looked = 0
        client.meta.events.register("before-call.s3.PutObject", self._on_request)

    def _on_request(self, params: dict[str, Any], **_: Any) -> None:
        name = params["url_path"].rpartition("/")[2]
        if self.refused.get(name, 0):
            self.refused[name] -= 1
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")
        self.uploaded.append(name)

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.folder / name).write_text(text)

    def artifacts(self, target: str = TARGET) -> Artifacts:
        return Artifacts(
            lambda: clients.transfer_manager(self.client), self.folder, target, self.record, self.clock
        )

    def deliver(self, artifacts: Artifacts | None = None, seconds: float = 3600.0) -> str:
        end = self.clock.monotonic() + seconds
        return (artifacts or self.artifacts()).deliver(lambda: end, self.look)

    def look(self) -> None:
        self.looked += 1

    def there(self) -> dict[str, str]:
        found = self.client.list_objects_v2(Bucket="results").get("Contents", [])
        read = self.client.get_object
        return {one["Key"]: read(Bucket="results", Key=one["Key"])["Body"].read().decode() for one in found}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with models.moto():
        client: Any = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="results")
        yield Bench(tmp_path, client)


def test_what_changed_goes_and_what_did_not_stays(bench: Bench) -> None:
    bench.write(a="1", b="2")
    (bench.folder / "deep").mkdir()
    bench.write(**{"deep/c": "3"})
    assert bench.deliver() == ""
    assert bench.there() == {"resnet/a": "1", "resnet/b": "2", "resnet/deep/c": "3"}
    bench.uploaded.clear()
    bench.write(b="4")  # as large as before
    assert bench.deliver() == ""  # by another instance, which has the volume with the record
    assert bench.uploaded == ["b"]
    assert bench.there()["resnet/b"] == "4"


def test_a_file_that_was_replaced_or_set_back_in_time_goes_again(bench: Bench) -> None:
    bench.write(a="1", b="1")
    bench.deliver()
    bench.write(new="2")
    (bench.folder / "new").replace(bench.folder / "a")
    bench.write(b="2")
    os.utime(bench.folder / "b", (1, 1))
    bench.deliver()
    assert bench.there() == {"resnet/a": "2", "resnet/b": "2"}


def test_another_place_gets_everything(bench: Bench) -> None:
    bench.write(a="1")
    bench.deliver()
    bench.deliver(bench.artifacts("s3://results/other/"))
    assert bench.there() == {"resnet/a": "1", "other/a": "1"}


def test_nothing_is_deleted_there(bench: Bench) -> None:
    bench.write(a="1")
    bench.deliver()
    (bench.folder / "a").unlink()
    assert bench.deliver() == ""
    assert bench.there() == {"resnet/a": "1"}


def test_links_pipes_and_what_is_not_ready_stay(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("of the host")
    bench.write(good="1", **{".half": "2"})
    (bench.folder / "link").symlink_to(tmp_path / "secrets" / "key")
    (bench.folder / "folder").symlink_to(tmp_path / "secrets")
    (bench.folder / "dangling").symlink_to("nowhere")
    os.mkfifo(bench.folder / "pipe")
    assert bench.deliver() == ""
    assert bench.there() == {"resnet/good": "1"}


def test_the_jobs_own_folder_may_not_be_a_link_either(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("of the host")
    bench.folder.rmdir()
    bench.folder.symlink_to(tmp_path / "secrets")
    bench.deliver()
    assert bench.there() == {}


def test_a_checkpoint_starts_an_upload_and_no_other_look_does(bench: Bench) -> None:
    artifacts = bench.artifacts()

    def settle() -> None:
        for thread in threading.enumerate():
            if thread.name == "artifacts":
                thread.join(TIMEOUT_SECONDS)

    bench.write(a="1")
    artifacts.offer(0.0)
    settle()
    assert bench.there() == {}
    artifacts.offer(100.0)
    settle()
    assert bench.there() == {"resnet/a": "1"}
    bench.write(b="2")
    artifacts.offer(100.0)
    settle()
    assert "resnet/b" not in bench.there()


def test_what_is_refused_is_tried_again(bench: Bench) -> None:
    bench.write(a="1", b="2")
    bench.refused["a"] = 2
    assert bench.deliver() == ""
    assert bench.there() == {"resnet/a": "1", "resnet/b": "2"}
    assert bench.uploaded.count("b") == 1
    assert bench.looked


def test_what_never_arrives_is_named(bench: Bench) -> None:
    bench.write(a="1", b="2")
    bench.refused["a"] = 1000
    said = bench.deliver()
    assert said.startswith("artifacts not uploaded to s3://results/resnet/: a: AccessDenied")
    assert bench.refused["a"] == 1000 - 5
    assert bench.there() == {"resnet/b": "2"}


def test_there_is_an_end_to_it(bench: Bench) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(**_: Any) -> None:
        hangs.set()
        goes_on.wait(TIMEOUT_SECONDS)

    bench.client.meta.events.register("before-call.s3.PutObject", hang)
    bench.write(a="1")
    artifacts, over = bench.artifacts(), [float("inf")]

    def look() -> None:
        if hangs.is_set():  # a notice comes
            over[0] = bench.clock.monotonic()
            goes_on.set()

    said = artifacts.deliver(lambda: over[0], look)
    assert "a: " in said or said.endswith("no time")  # as it breaks off before or after its answer
    assert bench.deliver(seconds=0.0).endswith("no time")


def test_what_the_lease_says_ends_it(bench: Bench) -> None:
    bench.write(a="1")

    def lost() -> None:
        raise LeaseLostError("taken over")

    goes_on = threading.Event()
    events = bench.client.meta.events
    events.register("before-call.s3.PutObject", lambda **_: goes_on.wait(TIMEOUT_SECONDS) and None)
    with pytest.raises(LeaseLostError):
        bench.artifacts().deliver(lambda: float("inf"), lost)
    goes_on.set()


def test_a_file_that_changes_meanwhile_goes_once_more(bench: Bench) -> None:
    bench.write(log="one line")
    written: list[str] = []

    def write_on(**_: Any) -> None:
        if not written:
            written.append("")
            bench.write(log="two lines")

    bench.client.meta.events.register("before-call.s3.PutObject", write_on)
    assert bench.deliver() == ""
    assert bench.there() == {"resnet/log": "two lines"}


def test_what_has_gone_is_remembered_where_the_job_cannot_write(bench: Bench) -> None:
    bench.write(a="1")
    bench.deliver()
    assert bench.record.exists()
    assert not bench.record.is_relative_to(bench.folder)
    bench.record.write_text("not JSON")
    bench.uploaded.clear()
    bench.deliver()
    assert bench.uploaded == ["a"]


def test_results_that_have_arrived_count_on_a_volume_that_is_full(bench: Bench) -> None:
    bench.write(a="1")
    bench.record.mkdir()  # no record can be written, as on a full disk
    assert bench.deliver() == ""
    assert (bench.uploaded, bench.there()) == (["a"], {"resnet/a": "1"})


@pytest.mark.parametrize("is_linked", [False, True])
def test_old_runs_are_deleted_and_no_link_is_followed(tmp_path: Path, is_linked: bool) -> None:
    outside, home = tmp_path / "outside", tmp_path / "checkpoints" / "resnet"
    config = configs.load(configs.training(volume={"sizeGib": 1}))
    run = ScheduledRun("p", 2, "20270304T010000Z")
    config = replace(config, training=replace(config.training, scheduled=run))  # type: ignore[type-var]
    target = outside if is_linked else home
    for place in (target / "20270301T010000Z", target / "20270303T010000Z", target / "notes", outside / "x"):
        place.mkdir(parents=True)
    (target / "20270301T010000Z" / "link").symlink_to(outside / "x")
    (target / "20270302T010000Z").symlink_to(outside)
    if is_linked:
        home.parent.mkdir()
        home.symlink_to(outside)
    delete_old_runs(SimpleNamespace(config=config, data=tmp_path, host=UnitHost()))  # type: ignore[arg-type]
    kept = {"20270302T010000Z", "20270303T010000Z", "notes"} | (
        {"20270301T010000Z", "x"} if is_linked else set()
    )
    assert {path.name for path in home.iterdir()} == kept
    assert (outside / "x").is_dir()
