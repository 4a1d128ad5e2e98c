"""The progress line: on a terminal with the time left, nowhere else."""

from __future__ import annotations

import pytest

from gpu_spot.progress import progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_alone_shows_the_time_left(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR" if is_terminal else "NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("asking AWS") as on_progress:
        for done in range(3):
            on_progress(done, 10)
    output = capsys.readouterr()
    assert output.out == ""
    assert ("asking AWS" in output.err, " left" in output.err) == (is_terminal, is_terminal)
