"""examples/resnet50-cifar10 on TensorFlow: killed and resumed, it ends with the same weights and log."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment, play


@pytest.mark.soak
def test_the_resnet_job_ends_bit_identical_after_signals(tmp_path: Path) -> None:
    arguments = ("--folder", tmp_path / "jobs", "--terms", "1", "--kills", "1", "--images", "24")
    result = play(environment("tensorflow"), "resnet_kills", *arguments, seconds=900)
    assert (result["sigterm"], result["sigkill"], result["mismatches"]) == (1, 1, 0)
    assert result["starts"] >= 3
    assert result["faults"] == []
    assert result["columns"] == "epoch,step,accuracy,loss,val_accuracy,val_loss"
