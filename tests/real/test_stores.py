"""Storage with the real libraries: fsspec's stores, and PyTorch on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.environments import environment, play
from tests.spot_training.small_disk import small_disk


@pytest.fixture(scope="module")
def place() -> Path:
    return environment("torch")


def test_a_store_of_fsspec_holds_checkpoints(place: Path) -> None:
    seen = play(place, "store_fsspec.py", seconds=120)
    assert seen["names"] == ["step-000000000020", "step-000000000030"]
    assert seen["step"] == 20
    assert "memory://bucket/jobs/a was taken over by process" in seen["wins"]
    assert "step-000000000050 exists already" in seen["exists"]
    assert seen["damaged"] == ["step-000000000030"]
    assert "script a.py there, b.py here" in seen["reasons"][0]
    assert "cannot be set aside in an object store" in seen["reasons"][1]
    assert seen["remaining"] == ["step-000000000010"]


@pytest.mark.parametrize(("kilobytes", "fits"), [(5000, 3), (3300, 2), (1900, 1)])
def test_a_loop_ends_on_a_disk_of_any_size(place: Path, tmp_path: Path, kilobytes: int, fits: int) -> None:
    """A checkpoint has 1.44 MB; before, with room for three, none was saved after the third."""
    with small_disk(tmp_path / "small", kilobytes) as small:
        seen = play(place, "full_torch.py", small, seconds=120)
    assert seen["step"] == 10
    assert any("fit" in line for line in seen["lines"])
    if fits > 1:
        assert seen["names"][-1] == "step-000000000010"
        assert len(seen["names"]) == fits - 1  # at the end step 10 was replaced, which needs the room of one
    else:
        assert len(seen["names"]) == 1
        assert "last step not saved; the script continues to its end" in seen["lines"][-1]
        assert all("No space left on device" in line for line in seen["lines"] if "not saved" in line)
