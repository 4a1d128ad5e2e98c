"""What these tests rest on: the record of runs, and a server that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbitmq
import run_recorder

from spot_work import Request


def test_a_function_of_requests_gets_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_recorder.RECORD, str(tmp_path / "runs"))
    monkeypatch.setenv(run_recorder.TAKES_REQUESTS, "1")
    monkeypatch.setattr(run_recorder, "_function", lambda: list)
    request = Request("id", [1], deadline=7.0)
    assert run_recorder.run([request]) == [request]


def test_runs_are_counted_by_their_repeat_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_recorder.RECORD, str(tmp_path / "runs"))
    monkeypatch.setenv(run_recorder.FUNCTION, "operator:length_hint")
    once, marked, unmarked = (Request(name, [1]) for name in ("once", "marked", "unmarked"))
    assert run_recorder.run(once) == 1
    assert run_recorder.run([marked, unmarked]) == 2
    run_recorder.write_down(
        [Request("marked", 1, is_repeat=True), unmarked, Request("back", 1, is_repeat=True)]
    )
    assert run_recorder.read(tmp_path / "runs", tmp_path / "none") == run_recorder.Runs(1, 2, 1)


def test_a_missing_broker_is_an_error_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq, "_SERVER", Path("/nowhere/rabbitmq-server"))
    with pytest.raises(rabbitmq.BrokerError, match="apt-get install rabbitmq-server"):
        rabbitmq.installed()
