"""The report of a training job whose volume moved."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import pytest

from rehearsal.report.page import render
from rehearsal.results.moves import PARTS, Cause, Contents, JobMigrations, Move, to_json
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise
from tests.report.rehearsal import ZONES, printed

SAVED = Contents(28, "a" * 64)
A, B, _ = ZONES


def moved(run: Run, at: float, after: Contents = SAVED, *, cause: Cause = "notice") -> Move:
    start = run.at(0) + at
    return Move(
        cause=cause,
        from_zone=A,
        to_zone=B,
        from_volume="vol-1",
        to_volume="vol-2",
        lost=start,
        freed=start + 46,
        transfer_started=start + 180,
        copied=start + 620,
        mounted=start + 640,
        running=start + 660,
        step=40,
        steps_lost=13 if cause == "loss" else 0,
        before=SAVED,
        after=after,
    )


@pytest.fixture(scope="module")
def job(run: Run) -> Run:
    hour = 3600.0
    moves = (moved(run, 10 * hour), moved(run, 30 * hour, cause="loss"))
    return replace(run, migrations=JobMigrations(moves, False, 30.0, 20))


def test_the_parts_of_a_move_make_up_its_time(run: Run) -> None:
    move = moved(run, 0)
    assert move.parts == {"release": 46, "wait": 134, "snapshot": 440, "attach": 20, "start": 20}
    assert sum(move.parts.values()) == move.seconds == 660


def test_the_summary_has_the_moves_of_a_job_and_none_of_a_service(job: Run, run: Run) -> None:
    summary = json.loads(json.dumps(summarise(job)))
    assert [move["at"] for move in summary["moves"]] == [run.at(600), run.at(1800)]
    assert summary["moves"][1]["steps_lost"] == 13
    content = {"files": 28, "before": "a" * 64, "after": "a" * 64, "equal": True}
    assert summary["moves"][0]["content"] == content
    assert "moves" not in summarise(run)
    assert 'id="moves"' not in render(run)


def test_the_terminal_gets_a_line(job: Run, run: Run) -> None:
    text = printed(summarise(job))
    assert "moves 2 of the volume, 2 to another zone, median 11 min" in text
    assert "same content each time, 13 steps lost" in text
    assert "moves" not in printed(summarise(run))


def test_content_that_differs_is_not_passed_over(job: Run) -> None:
    assert job.migrations is not None
    broken = moved(job, 3600, Contents(27, "b" * 64))
    assert not broken.intact
    assert to_json(broken)["content"]["equal"] is False
    bad = replace(job, migrations=replace(job.migrations, moves=(broken,)))
    assert "DIFFERENT, 28 → 27 files" in render(bad)
    assert "aaaaaaaaaaaa → bbbbbbbbbbbb" in render(bad)


def test_the_page_lists_every_move(job: Run) -> None:
    table = re.search(r'<section class="card" id="moves">.*?</section>', render(job), re.DOTALL)
    assert table
    rows = re.findall(r"<tr><td>.*?</tr>", table[0], re.DOTALL)
    assert len(rows) == 2
    text = unescape(re.sub(r"<[^>]+>", " ", rows[1]))
    assert text.split() == [
        *("2026-01-02", "06:00", "without", "notice", A, "→", B, "vol-1", "→", "vol-2"),
        *("0:46", "2:14", "7:20", "0:20", "0:20", "11:00", "13", "equal,", "28", "files", "a" * 12),
    ]
    for part in PARTS:
        assert f">{part}</th>" in table[0]


def test_an_uninterrupted_job_has_no_moves(job: Run) -> None:
    assert job.migrations is not None
    without_moves = replace(job, migrations=replace(job.migrations, moves=()))
    assert "No interruption: the volume stayed where it was." in render(without_moves)
    assert summarise(without_moves)["moves"] == []
