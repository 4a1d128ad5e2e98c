"""``gpu-spot review --json``: one document with the content of the comment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_spot.cli import main
from tests.docs.keys import documented
from tests.review.making import made_previews


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The options with the engine's files."""
    fleet = made_previews("other-types-of-a-fleet")["fleet"]
    digest, events = tmp_path / "fleet.json", tmp_path / "fleet.jsonl"
    digest.write_text(fleet.digest, "utf-8")
    events.write_text(fleet.events, "utf-8")
    return ("--preview", str(digest), "--events", str(events))


def test_review_json_is_one_document_and_out_has_the_comment(
    tmp_path: Path, files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    forecast = tmp_path / "fleet.md"
    forecast.write_text("# Forecast\n\nThe month costs $9 more.\n")
    more = ["--forecast", str(forecast), "--commit", "c0ffee", "--expect-no-changes"]
    assert main(["review", *files, *more]) == 3
    comment = capsys.readouterr().out
    assert main(["review", *files, *more, "--json", "--out", str(tmp_path / "comment.md")]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (tmp_path / "comment.md").read_text("utf-8") == comment
    assert document.keys() == documented("review")
    [fleet] = document["environments"]
    assert (document["commit"], document["is_changed"], fleet["environment"]) == ("c0ffee", True, "fleet")
    assert fleet["severity"] == fleet["effects"][0]["severity"] == "ends"
    assert fleet["effects"][0]["group"] == "inference"
    assert fleet["cost"] == "The month costs $9 more."
    assert {one["level"] for one in fleet["policies"]} == {"advisory"}
    for effect in fleet["effects"]:
        assert effect["words"] in comment


def test_results_without_policies_and_forecast_are_null(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["review", *files[:2], "--json"]) == 0
    [fleet] = json.loads(capsys.readouterr().out)["environments"]
    assert (fleet["policies"], fleet["cost"]) == (None, None)
