"""Faults drawn at each call of a storage: no committed step is lost, nor stepped back from in silence."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from spot_training import Checkpointer, InUseError, SpotTrainingError
from spot_training.storage.calls import RetryPolicy
from spot_training.storage.files import Files
from spot_training.storage.folder import store_of
from spot_training.storage.s3 import S3Store
from support.disk import Clock, Gone, content

CALLS = ("acquire", "clean", "names", "manifest", "stage", "deliver", "commit", "drop", "fetch", "remove")
FAULTS = ("error", "refused", "slow", "killed before", "killed after", "superseded")
STEPS = 5


class Faulty:
    """A storage that has one fault: at the ``number``-th call of a kind."""

    def __init__(self, store: Any, call: str, number: int, fault: str, clock: Clock) -> None:
        self._store, self._call, self._left, self._fault, self._clock = store, call, number, fault, clock
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return value if name != self._call else lambda *arguments: self._faulty(value, arguments)

    def _faulty(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self._left -= 1
        if self._left:
            return call(*arguments)
        self.has_failed = True
        if self._fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._fault == "refused":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if self._fault == "superseded":
            raise InUseError("was taken over by another process")
        if self._fault == "slow":
            self._clock.sleep(45.0)
        if self._fault != "killed before":
            result = call(*arguments)
            if self._fault == "slow":
                return result
        raise Gone


def play(make: Callable[[], Any], chance: random.Random) -> None:
    """Start, save, fail, start again: at each start the newest step that a save returned from is there."""
    saved, tried = 0, 0
    for _ in range(3):
        clock = Clock()
        store = make()
        faulty = Faulty(store, chance.choice(CALLS), chance.randrange(1, 6), chance.choice(FAULTS), clock)
        one = Checkpointer(store=faulty, keep=2, retry_policy=RetryPolicy(60.0, clock, clock.sleep))  # type: ignore[arg-type]
        try:
            found = one.restore()
            step = 0 if found is None else found.step
            assert saved <= step <= tried, (saved, step, tried, vars(faulty))
            saved = tried = step
            for _ in range(STEPS):
                tried = saved + 1
                one.save(tried, content(f"at {tried}"))
                saved = tried
        except (SpotTrainingError, OSError, Gone):
            assert faulty.has_failed
        finally:
            store.release()
    last = Checkpointer(store=make(), keep=2)
    found = last.restore()
    step = 0 if found is None else found.step
    assert saved <= step <= tried, (saved, step, tried)
    if found is not None:
        assert (found.part() / "state").read_text() == f"at {step}"
    last.close()


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_fault_of_a_directory_costs_a_committed_step(tmp_path: Path, count: int) -> None:
    for seed in range(count):
        play(lambda: store_of(str(tmp_path / str(seed)), Files(), RetryPolicy()), random.Random(seed))  # noqa: B023


@pytest.mark.parametrize("count", [21, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_fault_of_an_object_store_costs_a_committed_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="kept")
        for seed in range(count):
            url = f"s3://kept/{seed}"
            play(lambda: S3Store(url, client, tmp_path), random.Random(seed))  # noqa: B023
