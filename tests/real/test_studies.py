"""Studies judged by Optuna: its pruners, its best trial, and its sampler on machines that are lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.study_machines import Losses, play, study
from tests.real.environments import environment, play_module
from tests.real.study_sampler import OptunaSampler

pytestmark = pytest.mark.soak
"""The environment takes longer to install than the tests to run."""


@pytest.fixture(scope="module")
def place() -> Path:
    return environment("study")


@pytest.fixture(scope="module")
def sampler(place: Path) -> Iterator[OptunaSampler]:
    started = OptunaSampler(place)
    yield started
    started.close()


def test_trials_are_pruned_as_by_optuna(place: Path) -> None:
    seen = play_module(place, "study_optuna", "4", seconds=120)
    assert (seen["plays"], seen["differ"], seen["other_best"]) == (24, 0, 0)
    assert 100 < seen["pruned"] < 900


def test_lost_machines_do_not_change_a_study_of_tpe(sampler: OptunaSampler, tmp_path: Path) -> None:
    studied = study(24, 3, sampler="tpe")
    calm = play(studied, 3, tmp_path / "calm", run=sampler.run)
    losses = Losses(silent=0.01, announced=0.01, pause=0.004)
    lossy = play(studied, 3, tmp_path / "lossy", losses, seed=1, run=sampler.run)
    assert lossy.lost >= 3
    assert lossy.parameters() == calm.parameters()
    assert lossy.outcomes() == calm.outcomes()


def test_the_same_question_has_the_same_answer(sampler: OptunaSampler, tmp_path: Path) -> None:
    """Also with NaN, and with a trial that is complete or was cut."""
    space = {
        "A": {"count": 3, "is_category": True},
        "B": {"count": 4},
        "C": {"min": 0.1, "max": 1, "log": True},
    }
    trials = [
        {
            "parameters": {"A": number % 3, "B": number % 4, "C": 0.1 + number / 20},
            "is_complete": number % 2 == 0,
            "rungs": [[1, repr(number / 9)], [3, "nan" if number == 3 else repr(number / 10)]],
            "value": "nan" if number in (3, 4) else repr(number / 10),
        }
        for number in range(15)
    ]
    question, answer = tmp_path / "question", tmp_path / "answer"
    found = []
    for seed in (1, 1, 2):
        question.write_text(json.dumps({"seed": seed, "goal": "minimize", "space": space, "trials": trials}))
        sampler.run(["spot-training", "suggest", str(question), str(answer)])
        found.append(json.loads(answer.read_text()))
    assert found[0] == found[1] != found[2]
    assert found[0]["A"] in range(3)
    assert found[0]["B"] in range(4)
    assert 0.1 <= found[0]["C"] <= 1
