"""Keras and JAX, killed and told at random moments: weights and log are an undisturbed training's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import environment, play

run = partial(play, seconds=1500)


def kills(place: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    found = run(place, "kills", "train_keras", "--folder", folder, *arguments)
    assert found["mismatches"] == found["unreadable"] == 0
    assert found["faults"] == []
    return found


@pytest.mark.parametrize("each", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_notices_and_kills_change_no_bit(tmp_path: Path, each: int) -> None:
    result = kills(environment("keras"), tmp_path, "--terms", str(each), "--kills", str(each))
    assert (result["sigterm"], result["sigkill"]) == (each, each)
    assert result["lost_steps_with_notice"] == 0


@pytest.mark.soak
def test_keras_on_pytorch_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    result = kills(environment("torch"), tmp_path, "--terms", "5", "--kills", "5")
    assert (result["sigterm"], result["sigkill"]) == (5, 5)
    assert result["lost_steps_with_notice"] == 0


@pytest.mark.soak
def test_arrays_that_orbax_writes_change_no_bit(tmp_path: Path) -> None:
    arguments = ("train_orbax", "--folder", tmp_path, "--terms", "5", "--kills", "5")
    result = run(environment("keras"), "kills", *arguments)
    assert result["mismatches"] == result["unreadable"] == result["lost_steps_with_notice"] == 0
    assert result["faults"] == []


@pytest.mark.soak
def test_a_kill_at_some_touches_of_the_disk_loses_no_checkpoint(tmp_path: Path) -> None:
    quick = ["--option", "pause=0", "--option", "every=1e-9", "--option", "validation=false"]
    result = kills(environment("keras"), tmp_path, "--each-write", "--stride", "8", *quick)
    assert result["writes"] > 3


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_what_cannot_go_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    result = run(environment("keras" if backend == "jax" else backend), "refusals_keras", tmp_path)
    goes_on = ("goes on", "is done", "one told on its last batch", "a dataset", "a validation", "bfloat16")
    assert [result.pop(case) for case in (*goes_on, "values of callbacks")] == [True] * 7
    for case, part in {
        "another model": "another model: kernel (2, 3) float32 where this one has kernel (2, 4) float32",
        "other data": "samples, batch size, shuffle, seed were [12, 2, 1, 0], now [12, 3, 1, 0]",
        "initial_epoch": "fit must not get initial_epoch",
        "another optimizer": "the model's critic is not built",
        "read ahead": "yields other batches when it is read again",
        "a generator": "must be arrays of one length, or x a PyDataset",
        "not compiled": "the model is not compiled",
    }.items():
        text = result.pop(case)
        assert part in text
        assert "\n" not in text
    assert not result
