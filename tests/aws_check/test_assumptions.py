"""The assumptions as they stand: each has a source, a place that leans on it and a fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu_spot import cli
from gpu_spot.aws_check import cost, table
from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.trial import Outcome
from tests.aws_check.faults import FAULTS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "aws-check.md").read_text("utf-8")


def test_every_assumption_has_a_name_of_its_own_and_a_fault() -> None:
    names = [assumption.name for assumption in ASSUMPTIONS]
    assert len(set(names)) == len(names)
    assert set(names) == FAULTS.keys()


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=lambda assumption: assumption.name)
def test_what_leans_on_an_assumption_is_there(assumption: Assumption) -> None:
    assert (REPOSITORY / assumption.leans).is_file()
    assert assumption.source
    assert assumption.falsified_by


def test_the_page_lists_every_assumption() -> None:
    assert table.not_run(ASSUMPTIONS) == PAGE or "Run on AWS in " in PAGE
    assert [assumption.name for assumption in ASSUMPTIONS if f"| `{assumption.name}` |" not in PAGE] == []


def test_a_page_of_a_run_says_where_and_when() -> None:
    outcomes = [Outcome(ASSUMPTIONS[0], "held", "a | b"), Outcome(ASSUMPTIONS[1], "falsified", "no")]
    page = table.run_on_aws(outcomes, "us-east-1", "2026-11-22")
    assert "Run on AWS in us-east-1 on 2026-11-22: 1 falsified, 1 held." in page
    assert "**held**: a \\| b" in page


def test_a_run_costs_less_than_the_cap_that_is_given_by_default() -> None:
    assert cost.at_most([]) < cost.at_most(ASSUMPTIONS[:10]) < cost.at_most(ASSUMPTIONS) < 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rehearse", "--only", "nothing"], "no assumption 'nothing', allowed: "),
        (["--yes-spend-money", "--profile", "nobody"], "nobody"),
    ],
)
def test_what_cannot_start_ends_with_two(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["aws-check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_money_is_never_spent_by_default() -> None:
    with pytest.raises(SystemExit):
        cli.main(["aws-check"])


def test_the_readme_counts_them() -> None:
    playable = sum(not assumption.unplayable for assumption in ASSUMPTIONS)
    for page in ("README.md", "CHANGELOG.md"):
        text = (REPOSITORY / page).read_text("utf-8")
        assert f"{len(ASSUMPTIONS)} sentences" in text
        assert re.search(rf"\b{playable} (?:can be played|of them are rehearsed)", text)
