"""Storage with the real libraries: PyTorch on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment, play

from support.small_disk import small_disk


@pytest.fixture(scope="module")
def place() -> Path:
    return environment("torch")


@pytest.mark.parametrize(("kilobytes", "fits"), [(5000, 3), (3300, 2), (1900, 1)])
def test_a_loop_ends_on_a_disk_of_any_size(place: Path, tmp_path: Path, kilobytes: int, fits: int) -> None:
    """A checkpoint has 1.44 MB; before, with room for three, none was saved after the third."""
    with small_disk(tmp_path / "small", kilobytes) as small:
        seen = play(place, "full_torch", small, seconds=120)
    assert seen["step"] == 10
    assert any("fit" in line for line in seen["lines"])
    if fits > 1:
        assert seen["names"][-1] == "step-000000000010"
        assert len(seen["names"]) == fits - 1  # at the end step 10 was replaced, which needs the room of one
    else:
        assert len(seen["names"]) == 1
        assert "last step not saved; the script continues to its end" in seen["lines"][-1]
        assert all("No space left on device" in line for line in seen["lines"] if "not saved" in line)
