"""The edges of ``Loop`` in real processes: notices while busy, surprising states, other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from environments import environment, play


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play(environment("torch"), "loop_torch", tmp_path_factory.mktemp("loop"), seconds=170)


@pytest.mark.parametrize("where", ["validation", "step"])
def test_a_notice_while_the_script_is_busy_loses_no_step(results: dict[str, Any], where: str) -> None:
    result = results[where]
    assert (result["code"], result["lost"]) == (0, 0), result["log"]
    assert result["seconds"] < 35  # it does not wait for what keeps it busy
    assert "Traceback" not in result["log"]
    assert result["again"]["code"] == 0, result["again"]["log"]
    assert "goes on at step" in result["again"]["log"]


def test_an_epoch_that_was_interrupted_at_its_end_repeats_its_last_batch_without_effect(
    results: dict[str, Any],
) -> None:
    lines = results["validation"]["again"]["log"].splitlines()
    assert lines[1:3] == ["step 3 True", next(line for line in lines if line.startswith("epoch 1 mean"))]
    assert [line for line in lines if line.endswith("False")] == ["step 4 False", "step 5 False"]


def test_a_finished_run_says_so_and_ends_well(results: dict[str, Any]) -> None:
    assert results["finished"]["code"] == 0
    assert "nothing to train, this run ended at step 6" in results["finished"]["log"]
    assert "epoch" not in results["finished"]["log"]


def test_what_follows_a_finished_run_has_the_random_numbers_of_its_end(results: dict[str, Any]) -> None:
    again, finished = (
        results["validation"]["again"]["log"].splitlines(),
        results["finished"]["log"].splitlines(),
    )
    assert again[-1].startswith("then ")
    assert finished[-1] == again[-1]


def test_a_surprising_state_ends_no_training(results: dict[str, Any]) -> None:
    assert results["converted"]["code"] == 0, results["converted"]["log"]
    assert "not saved" not in results["converted"]["log"]
    surprising = results["surprising"]
    assert surprising["code"] == 0, surprising["log"]
    assert "last step not saved; the script continues to its end" in surprising["log"]
    assert surprising["log"].endswith("exported\n")
    refused = results["unsupported"]
    assert refused["code"] == 1
    [line] = refused["log"].splitlines()
    assert "part cannot be saved: it has spot_training.errors.SpotTrainingError; use tensors" in line


def test_other_values_in_the_optimizer_are_another_run(results: dict[str, Any]) -> None:
    first, other, again = results["rate"]
    assert (first["code"], other["code"], again["code"]) == (0, 1, 0)
    [line] = other["log"].splitlines()
    assert line.startswith("spot_training.errors.OtherRunError: ")
    assert "optimizer.0.lr 0.1 there, 0.01 here" in line
    assert "nothing to train" in again["log"]


def test_two_trainings_of_a_process_need_names(results: dict[str, Any]) -> None:
    assert results["twice"]["code"] == 1
    assert results["twice"]["seconds"] < 30
    assert "give each training a name, such as name='fold-1'" in results["twice"]["log"]


def test_a_sigterm_before_a_workers_start_function_does_not_end_it(results: dict[str, Any]) -> None:
    assert results["raced"]["code"] == 0, results["raced"]["log"]
    assert "all 4" in results["raced"]["log"]


def test_ranks_with_different_numbers_of_batches_end_with_a_line(results: dict[str, Any]) -> None:
    even, more, none = results["uneven"]
    assert even["code"] == 0, even["log"]
    for result, step in ((more, 1), (none, 0)):
        lines = [line for line in result["log"].splitlines() if "different numbers of batches" in line]
        assert (result["code"], len(lines)) == (1, 2), result["log"]
        assert all(line.startswith(f"{step} the ranks have") for line in lines)
        assert result["seconds"] < 30


@pytest.mark.parametrize("stride", [53, pytest.param(37, marks=pytest.mark.soak)])
def test_the_best_checkpoint_survives_kills_with_each_kind_of_loader(tmp_path: Path, stride: int) -> None:
    results = play(environment("torch"), "keep_torch", tmp_path / "keep", str(stride), seconds=170)
    for kind, outcomes in results.items():
        assert len(outcomes) > 3
        assert outcomes[0]["codes"] == [0, 0], kind
        assert sum(outcome["codes"] == [-9, 0] for outcome in outcomes) > 1, kind
        for outcome in outcomes:
            assert (outcome["best"], outcome["pins"]) == ([8, 0.2], {"second": 4}), kind
            assert outcome["steps"] == [4, 8, 10], kind
            assert outcome["same"], kind
            assert outcome["epochs"] == [0, 1, 2, 3, 4], kind


def test_a_restore_by_four_ranks_reads_once_and_needs_no_second_state(tmp_path: Path) -> None:
    result = play(environment("torch"), "restore_torch", tmp_path, "4", "4000000", seconds=170)
    assert result["same"]
    assert not result["mapped_afterwards"]
    assert result["extra_memory"] <= 1.2
    assert result["storage_reads"] <= 1.1


def test_a_background_save_gives_way_only_if_both_would_not_end_in_time(results: dict[str, Any]) -> None:
    assert results["gives way"] == [False, False, False, True, False, "gave way", False]


def test_a_step_has_the_same_samples_and_gradients_at_any_number_of_ranks(results: dict[str, Any]) -> None:
    assert results["parts"]["same"]
    assert results["parts"]["difference"] < 1e-12


def test_learning_rates_follow_the_global_batch_by_the_rule_that_is_named(results: dict[str, Any]) -> None:
    assert results["parts"]["linear"] == pytest.approx([0.05, 0.05, 0.025])
    assert results["parts"]["sqrt"] == pytest.approx([0.05, 0.05, 0.025])


@pytest.mark.soak
@pytest.mark.parametrize(("kills", "ranks"), [(3, 1), (20, 1), (36, 2)])
def test_kills_lost_machines_and_notices_change_no_bit_on_two_levels(
    tmp_path: Path, kills: int, ranks: int
) -> None:
    """Of two ranks also of one alone, and while a checkpoint is copied to the second level."""
    options = [str(kills), str(ranks)]
    result = play(environment("torch"), "local_torch", tmp_path, *options, seconds=400)
    assert result["wrong"] == [], result["log"]
    assert result["same"], result["log"]
    assert min(result["counts"].values()) >= 1
    assert sum(result["counts"].values()) == kills
    assert result["left"] == 0
    assert result["slowest"] < 30  # torchrun's grace, of the rank that is left
    assert ranks > 1 or "Traceback" not in result["log"]
