"""``gpu-spot demo`` of a training job, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_command import REPOSITORY, forked, run_command
from tests.waiting import TIMEOUT_SECONDS


@pytest.mark.soak
def test_the_demo_shows_every_move_of_the_volume(tmp_path: Path) -> None:
    done = forked("demo", "--stack", "research", "--group", "resnet", "--hours", "8", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads((tmp_path / "summary.json").read_text())
    moves = summary["moves"]
    assert any(move["from"]["zone"] != move["to"]["zone"] for move in moves)
    assert all(move["content"]["equal"] for move in moves)
    assert all(move["steps_lost"] == 0 for move in moves if move["cause"] != "loss")
    assert all(min(move["parts"].values()) >= 0 for move in moves)
    assert 0 < summary["availability"] < 1
    page = (tmp_path / "report.html").read_text()
    assert "Spot 180 s, On-Demand 180 s until the agent starts" in page  # there is no warm pool
    for move in moves:
        assert move["to"]["volume"] in page
    assert f"moves {len(moves)} of the volume" in " ".join(done.stdout.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "moon"], "group 'moon' is not deployed; groups: resnet"),
        (
            ["--target", "2"],
            "target is 2 for no group, allowed only for a service",
        ),
        (["--target", "2", "--group", "resnet"], "target is 2 for resnet, allowed only for a service"),
        (
            ["--job", "examples"],
            "no training job on instances has repository https://git.example.org/examples; ",
        ),
        (["--job", "examples/moon"], "--job is examples/moon, allowed: a folder of"),
        (
            ["--job", "examples/training", "--group", "resnet"],
            "--job with --group, allowed: --job without it",
        ),
        (["--python", "venv"], "--python is venv, allowed only with --job"),
        (["--load"], "the first group of stack research has no scaling, allowed with --load"),
        (["--job", "examples/training", "--load"], "--job with --load, allowed: --job without it"),
    ],
)
def test_bad_input_gives_a_one_line_error(arguments: list[str], message: str) -> None:
    code, said = run_command(["demo", "--stack", "research", *arguments])
    assert code == 1
    assert message in said
    assert len(said.strip().splitlines()) == 1


SHORTER = """
import sys
from gpu_spot import cli
from rehearsal import real_job
from rehearsal.commands import stacks

real_job.LOSSES = 3
load = stacks.load


def shorter(*given):
    config = load(*given)
    for job in config.values.get("gpu-spot:training", ()):
        job["command"] += ["--steps", "1200"]
    return config


stacks.load = shorter
sys.exit(cli.main(sys.argv[1:]))
"""
"""The command with a shorter script of its market and a shorter job; `make demo-research` has both whole."""


@pytest.mark.soak  # `live/test_real_job.py` runs a shorter one each time
def test_the_shipped_job_runs_from_clone_to_done_through_its_losses(tmp_path: Path) -> None:
    job = [
        "demo",
        "--stack",
        "research",
        "--job",
        "examples/training",
        "--notice-share",
        "0.5",
        "--seed",
        "5",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-c", SHORTER, *job],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads((tmp_path / "summary.json").read_text())
    job, moves = summary["job"], summary["moves"]
    assert (job["state"], list(job["results"])) == ("done", ["model.json"])
    assert job["intact"]  # identical to an uninterrupted run
    assert job["command"][:2] == ["python3", "train.py"]
    assert sum(move["cause"] in ("notice", "loss") for move in moves) >= 3
    assert summary["interruptions"] >= 1  # those of the first hour are warm-up
    assert len({move["to"]["zone"] for move in moves}) == 3
    assert {"notice", "loss"} <= {move["cause"] for move in moves}
    assert any(move["from"]["volume"] != move["to"]["volume"] for move in moves)
    assert all(move["steps_lost"] == 0 for move in moves if move["cause"] != "loss")
    assert all(0 <= move["steps_lost"] <= 200 for move in moves if move["cause"] == "loss")
    assert all(move["content"]["equal"] and move["content"]["files"] > 24 for move in moves)
    assert "identical to those of an uninterrupted run" in " ".join(done.stdout.replace("│", " ").split())
