"""Each assumption has a source, a module that uses it, and a fault."""

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


def test_every_assumption_has_a_unique_name_and_a_fault() -> None:
    names = [assumption.name for assumption in ASSUMPTIONS]
    assert len(set(names)) == len(names)
    assert set(names) == FAULTS.keys()


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=lambda assumption: assumption.name)
def test_the_module_that_uses_an_assumption_exists(assumption: Assumption) -> None:
    assert (REPOSITORY / assumption.used_by).is_file()
    assert assumption.source
    assert assumption.falsified_by


def test_the_page_lists_every_assumption() -> None:
    assert table.not_run(ASSUMPTIONS) == PAGE or "Run on AWS in " in PAGE
    assert [assumption.name for assumption in ASSUMPTIONS if f"| `{assumption.name}` |" not in PAGE] == []


def test_the_page_of_a_run_has_region_and_date() -> None:
    outcomes = [Outcome(ASSUMPTIONS[0], "held", "a | b"), Outcome(ASSUMPTIONS[1], "falsified", "no")]
    page = table.run_on_aws(outcomes, "us-east-1", "2026-11-22")
    assert "Run on AWS in us-east-1 on 2026-11-22: 1 falsified, 1 held." in page
    assert "**held**: a \\| b" in page


def test_a_run_costs_less_than_the_default_cap() -> None:
    assert cost.max_cost([]) < cost.max_cost(ASSUMPTIONS[:10]) < cost.max_cost(ASSUMPTIONS) < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rehearse", "--only", "nothing"], "unknown assumption 'nothing', allowed: "),
        (["--yes-spend-money", "--profile", "nobody"], "nobody"),
    ],
)
def test_a_run_that_cannot_start_has_exit_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["aws-check", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_mode_is_required() -> None:
    with pytest.raises(SystemExit):
        cli.main(["aws-check"])


def test_the_readme_has_the_number_of_assumptions() -> None:
    playable = sum(not assumption.unsupported_reason for assumption in ASSUMPTIONS)
    for page in ("README.md", "CHANGELOG.md"):
        text = (REPOSITORY / page).read_text("utf-8")
        assert f"{len(ASSUMPTIONS)} sentences" in text
        assert re.search(rf"\b{playable} (?:can be played|of them are rehearsed)", text)
