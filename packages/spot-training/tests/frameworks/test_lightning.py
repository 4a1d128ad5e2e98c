"""Lightning, killed and notified: weights, curves and the rows of loggers are an uninterrupted run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from environments import environment, play

from frameworks.wild import harness


@pytest.mark.soak
def test_scripts_of_lightning_survive_kills(tmp_path: Path) -> None:
    scripts = (*harness.LIGHTNING, *harness.STREAMS)
    options = ["--folder", tmp_path, "--kills", "5", "--jobs", "2", "--only", *scripts]
    result = play(environment("torch"), "wild.harness", *options, seconds=570)
    assert result["wild_scripts"] == len(scripts)
    assert result["wild_kills"] >= 5 * len(scripts)
    assert result["faults"] == []
    for key in ("wild_mismatches", "stuck_runs", "exports_lost", "failed_starts", "lost_steps_with_notice"):
        assert result[key] == 0, key


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play(environment("torch"), "edges_lightning", tmp_path_factory.mktemp("edges"), seconds=170)


@pytest.mark.parametrize("kind", ["shuffle", "stateful", "iterable"])
def test_the_order_of_an_interrupted_epoch_is_an_uninterrupted_ones(
    results: dict[str, Any], kind: str
) -> None:
    result = results[kind]
    assert result["codes"] == [0, 0], result["log"]
    assert result["equal"]
    assert result["steps"] == 12
    assert "not resumed" not in result["log"]


def test_what_has_no_position_is_said_in_one_line(results: dict[str, Any]) -> None:
    result = results["sampler"]
    assert result["codes"] == [0, 0], result["log"]
    reason = "Drifting draws another order each time"
    line = f"spot_training: not resumed: the order of samples in an epoch ({reason})"
    assert result["log"].splitlines().count(line) == 2
    line = (
        "spot_training: a Stream has no state_dict: a resumed epoch reads it again from its start, and each"
    )
    assert results["iterable"]["log"].count(line) == 2


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("no model", "SpotCheckpoint has no model; pass fit(ckpt_path=spot.resume_from(model))"),
        ("other rate", "is of a run with other values (SGD 0.0.lr 0.1 there, 0.2 here)"),
        ("other data", "was saved with other data or another sampler"),
        ("unsupported", "the Trainer cannot be saved: it has types.SimpleNamespace"),
        (
            "dataloader_iter",
            "training_step(dataloader_iter) has no position that can be saved; take batch instead",
        ),
        ("sharded", "FSDPStrategy with 1 processes is not supported; use one device, or DDP under torchrun"),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_one_line(results: dict[str, Any], case: str, text: str) -> None:
    result = results[case]
    assert result["code"] == 1, result["log"]
    line = result["log"].splitlines()[-1]
    assert line.startswith("spot_training.")
    assert text in line
    assert "Traceback" not in result["log"]


def test_a_training_that_stopped_early_is_not_continued(results: dict[str, Any]) -> None:
    first, again = results["early"]
    assert first["code"] == again["code"] == 0, again["log"]
    assert "not resumed: the best models of a ModelCheckpoint without dirpath" in first["log"]
    assert "nothing to train, this run ended at step 6" in again["log"]
    assert again["log"].splitlines()[-1] == first["log"].splitlines()[-1]  # epoch, metrics and weights


def test_two_ranks_stop_at_the_same_step_and_resume_their_order(results: dict[str, Any]) -> None:
    result = results["ranks"]
    assert result["codes"] == [0, 0, 0], result["log"]
    assert result["equal"]
    assert result["weights"][0] == result["weights"][1]
