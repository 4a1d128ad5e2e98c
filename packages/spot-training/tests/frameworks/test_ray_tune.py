"""examples/ray-tune: its files are whole or absent, and a killed study has the best trial of a calm one."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from environments import LOCKS, ROOT, environment, play

EXAMPLE = ROOT / "examples/ray-tune"


@pytest.fixture
def on_spot(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's module, with stand-ins for Ray, pyarrow and fsspec."""
    fs = SimpleNamespace(FSSpecHandler=object, PyFileSystem=SimpleNamespace)
    stand_ins = {
        "fsspec.implementations.local": SimpleNamespace(LocalFileSystem=object),
        "pyarrow": SimpleNamespace(fs=fs, PythonFile=SimpleNamespace),
        "pyarrow.fs": fs,
        "ray": SimpleNamespace(tune=SimpleNamespace(Callback=object)),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location("on_spot", EXAMPLE / "on_spot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_has_its_old_content_until_it_is_closed(on_spot: Any, tmp_path: Path) -> None:
    state = tmp_path / "experiment_state-1.json"
    state.write_text("old")
    file = on_spot.WholeFile(str(state))
    file.write(b"new")
    assert state.read_text() == "old"
    assert [path.name for path in tmp_path.glob("experiment_state-*.json")] == [state.name]
    file.close()
    file.close()
    assert state.read_text() == "new"
    assert list(tmp_path.iterdir()) == [state]


def test_a_notice_ends_fit_by_its_handler(on_spot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(on_spot.signal, "signal", handlers.__setitem__)
    raised: list[int] = []
    monkeypatch.setattr(on_spot.signal, "raise_signal", raised.append)
    received = on_spot.save_at_notice()
    assert not received
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert received
    assert raised == [signal.SIGUSR1]  # Tune's, by which fit() saves the study and returns


def test_the_examples_ray_is_the_one_that_was_tried() -> None:
    [line] = (EXAMPLE / "requirements.txt").read_text().splitlines()
    assert line == (LOCKS / "ray.in").read_text().strip()
    assert f"\n{line.replace('[tune]', '')} " in (LOCKS / "ray.txt").read_text().replace("ray[tune]", "ray")


@pytest.mark.soak
def test_a_killed_study_ends_as_a_calm_one(tmp_path: Path) -> None:
    """Its environment is some 150 MB to download: in ``make soak`` only."""
    seen = play(environment("ray"), "ray_kills", tmp_path, "4", "2", seconds=1500)
    assert seen["killed"]["unused"] == 0
    assert seen["killed"]["codes"] == [0, 0]
    assert seen["killed"]["best"] == seen["calm"]["best"]
    assert seen["killed"]["ends"] == seen["calm"]["ends"] == [8] * 16
