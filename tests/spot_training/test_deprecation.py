"""Deprecated names: each works for one version and warns with its new name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import spot_training
from spot_training import Checkpoint, Checkpointer, Interval, Notice, Progress, Spot
from spot_training.storage.retry import RetryPolicy


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("spot_training", "Saved", Checkpoint),
        ("spot_training.checkpointer", "Saved", Checkpoint),
        ("spot_training.storage.patience", "Patience", RetryPolicy),
    ],
)
def test_a_renamed_class_is_still_importable(module: str, name: str, new: type) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{name} is deprecated, use .*{new.__name__}") as warnings:
        assert getattr(importlib.import_module(module), name) is new
    assert warnings[0].filename == __file__
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        vars(importlib.import_module(module))["__getattr__"]("Other")


def test_renamed_attributes_return_the_new_value(tmp_path: Path) -> None:
    notice = Notice(environment={"GPU_SPOT_NOTICE": str(tmp_path / "notice.json")})
    with pytest.warns(
        DeprecationWarning, match=r"Notice\.told is deprecated, use Notice\.received"
    ) as warnings:
        assert not notice.told
    assert warnings[0].filename == __file__
    notice.close()
    checkpointer = Checkpointer(tmp_path / "checkpoints")
    with pytest.warns(DeprecationWarning, match=r"use Checkpointer\.location"):
        assert checkpointer.where == checkpointer.location == str(tmp_path / "checkpoints")
    report = tmp_path / "report.json"
    progress = Progress(environment={"GPU_SPOT_TELL": str(report)})
    with pytest.warns(DeprecationWarning, match=r"use Progress\.report"):
        progress.tell(1, 2, now=True)
    assert report.read_text() == '{"step": 1, "steps": 2}\n'


def test_renamed_arguments_are_passed_on(tmp_path: Path) -> None:
    policy = RetryPolicy(1.0)
    with pytest.warns(DeprecationWarning, match="argument .* is deprecated") as warnings:
        checkpointer = Checkpointer(place=tmp_path / "a", patience=policy)  # type: ignore[call-arg]
    assert [str(warning.message) for warning in warnings] == [
        "argument place of Checkpointer.__init__ is deprecated, use location",
        "argument patience of Checkpointer.__init__ is deprecated, use retry_policy",
    ]
    assert {warning.filename for warning in warnings} == {__file__}
    assert checkpointer.location == str(tmp_path / "a")
    with pytest.warns(DeprecationWarning, match="argument most of .* is deprecated, use max_seconds"):
        assert Interval(most=5.0, environment={}).seconds == 5.0  # type: ignore[call-arg]
    notice = Notice(environment={"GPU_SPOT_NOTICE": str(tmp_path / "notice.json")})
    with pytest.warns(DeprecationWarning, match="use location"):
        spot = Spot(place=tmp_path / "b", notice=notice, progress=Progress(environment={}))
    spot.restore()
    with pytest.warns(DeprecationWarning, match="argument stood of .* is deprecated, use paused_seconds"):
        spot.save(1, lambda part: None, stood=lambda: 3.0)  # type: ignore[call-arg]
    assert spot.interval.cost == 3.0
    spot.finish()
    spot.checkpointer._store.release()  # type: ignore[attr-defined]


def test_an_argument_by_both_names_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got both location and its old name place"):
        Checkpointer(tmp_path, place=tmp_path, location=tmp_path)  # type: ignore[call-arg,misc]


def test_exported_names_exist() -> None:
    for name in spot_training.__all__:
        assert hasattr(spot_training, name)
