"""Divided state (FSDP2, HSDP, tensor parallelism, ZeRO): n ranks save it, m restore it, to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from environments import environment, play


def reshard(folder: Path, seconds: float, **request: Any) -> dict[str, Any]:
    return play(environment("torch"), "shards_torch", folder, json.dumps(request), seconds=seconds)


def mismatches(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return what differs from the gathered state, by division and numbers of ranks."""
    return {
        f"{case} to {ranks}": texts
        for case, result in results.items()
        for ranks, texts in result["mismatches"].items()
        if texts
    }


def test_two_ranks_save_halves_and_one_restores_the_same_bits(tmp_path: Path) -> None:
    results = reshard(tmp_path, 60, kinds=["fsdp"], saved_by=[2], restored_by=[1], others=[])
    [result] = results.values()
    assert result["codes"] == [0, 0], result["log"]
    assert mismatches(results) == {}
    assert result["mismatches"].keys() == {"export", "fsdp 1"}
    assert max(result["bytes"]) < 0.55 * sum(result["bytes"])


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["fsdp", "hsdp", "tensor", "fsdp+tensor", "zero"])
def test_any_number_of_ranks_restores_the_same_bits(tmp_path: Path, kind: str) -> None:
    results = reshard(tmp_path, 280, kinds=[kind], saved_by=[2, 4], restored_by=[1, 2, 4, 8], width=16384)
    assert mismatches(results) == {}
    for result in results.values():
        shares = [number / sum(result["bytes"]) for number in result["bytes"]]
        # ZeRO divides by parameters, of which one here has half of the state.
        assert max(shares) < (0.6 if kind == "zero" else 1.1 / len(shares)), result["bytes"]
    assert sum(len(result["mismatches"]) for result in results.values()) == 12


@pytest.mark.soak
def test_ranks_restore_what_was_not_divided_or_was_in_another_way(tmp_path: Path) -> None:
    kinds = ["fsdp", "tensor", "zero"]
    results = reshard(tmp_path, 280, kinds=["whole"], saved_by=[1], restored_by=[], others=kinds)
    results |= reshard(tmp_path, 280, kinds=["zero"], saved_by=[2], restored_by=[], others=["fsdp+tensor"])
    results |= reshard(tmp_path, 280, kinds=["fsdp"], saved_by=[2], restored_by=[], others=["zero"])
    assert mismatches(results) == {}
    assert sum(len(result["mismatches"]) for result in results.values()) == 8


@pytest.mark.soak
def test_without_a_ranks_part_the_checkpoint_before_is_used_and_nothing_is_deleted(tmp_path: Path) -> None:
    results = play(environment("torch"), "shard_edges_torch", "damaged", tmp_path, seconds=170)
    assert results.pop("codes") == [[0, 0], [0, 0]]
    for name, result in results.items():
        assert not any(result["codes"][0]), result["log"]
        assert (name, result["mismatches"], result["stays"]) == (name, [], True)


@pytest.mark.soak
def test_what_cannot_be_saved_is_refused_at_construction_by_name(tmp_path: Path) -> None:
    result = play(environment("torch"), "shard_edges_torch", "refusals", tmp_path, seconds=60)
    assert result["codes"] == [0, 0], result["log"]
    for lines in result["lines"]:
        assert not any("\n" in line for line in lines.values())
        assert "model is divided among the ranks" in lines["fsdp1"]
        assert "FullyShardedDataParallel (FSDP1)" in lines["fsdp1"]
        assert "(FSDP1)" in lines["fsdp1-optimizer"]
        assert "DeepSpeedEngine (DeepSpeed)" in lines["deepspeed"]
        assert "ZeroRedundancyOptimizer with overlap_with_ddp" in lines["overlapping"]
        assert "weight is on the meta device" in lines["meta"]
        assert "rank 1 has other modules than rank 0, as with pipeline parallelism" in lines["stages"]
        assert "average.tensors.0 is not a DTensor, and differs between ranks 0 and 1" in lines["average"]
        assert lines["late"] == "0 checkpoints"
    assert "a tensor was divided among the ranks" in result["log"]


@pytest.mark.soak
def test_kills_of_a_rank_and_of_the_machine_change_no_bit(tmp_path: Path) -> None:
    result = play(environment("torch"), "shard_edges_torch", "killed", tmp_path, "12", seconds=280)
    assert result["codes"][-1] == [0, 0], result["log"]
    assert result["mismatches"] == []
    assert len(set(result["starts"])) > 6
