"""Values that a trial reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import spot_training
from spot_training.errors import ReportError


def test_values_are_appended_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    variables = {"GPU_SPOT_REPORTS": str(path)}
    path.write_text("[1, 0.")  # a killed process did not complete it
    for step, value in [(1, 0.5), (2, float("nan"))]:
        spot_training.report(value, step, environment=variables)
    lines = [line for line in path.read_text().splitlines() if line]
    assert lines[0] == "[1, 0."
    assert json.loads(lines[1]) == [1, 0.5]
    assert lines[2] == "[2, NaN]"


@pytest.mark.parametrize("more", [{}, {"RANK": "1"}, {"RANK": "0", "LOCAL_RANK": "2"}])
def test_without_a_study_and_in_other_ranks_nothing_is_reported(more: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "reports"
    variables = {"GPU_SPOT_REPORTS": str(path), **more} if more else {}
    spot_training.report(0.5, 1, environment=variables)
    assert not path.exists()


@pytest.mark.parametrize("step", [-1, 0.5])
def test_a_step_is_a_whole_number(step: float) -> None:
    with pytest.raises(ReportError, match=f"step {step}; allowed: a whole number"):
        spot_training.report(0.5, step, environment={})  # type: ignore[arg-type]


def test_a_full_or_missing_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file or directory"):
        spot_training.report(0.5, 1, environment={"GPU_SPOT_REPORTS": str(tmp_path / "no" / "reports")})
