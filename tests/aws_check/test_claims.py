"""The claims as they stand: each has a source, a place that leans on it, a fault; the page lists them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_spot import cli
from gpu_spot.aws_check import cost, table
from gpu_spot.aws_check.claim import Claim
from gpu_spot.aws_check.claims import CLAIMS
from gpu_spot.aws_check.trial import Outcome
from tests.aws_check.faults import FAULTS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "aws-check.md").read_text("utf-8")


def test_every_claim_has_a_name_of_its_own_and_a_fault() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert set(names) == FAULTS.keys()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_what_leans_on_a_claim_is_there(claim: Claim) -> None:
    assert (REPOSITORY / claim.leans).is_file()
    assert claim.source
    assert claim.falsified_by


def test_the_page_lists_every_claim() -> None:
    assert table.not_run(CLAIMS) == PAGE or "Run on AWS in " in PAGE
    assert [claim.name for claim in CLAIMS if f"| `{claim.name}` |" not in PAGE] == []


def test_a_page_of_a_run_says_where_and_when() -> None:
    outcomes = [Outcome(CLAIMS[0], "held", "a | b"), Outcome(CLAIMS[1], "falsified", "no")]
    page = table.run_on_aws(outcomes, "us-east-1", "2026-11-22")
    assert "Run on AWS in us-east-1 on 2026-11-22: 1 falsified, 1 held." in page
    assert "**held**: a \\| b" in page


def test_a_run_costs_less_than_the_cap_that_is_given_by_default() -> None:
    assert cost.at_most([]) < cost.at_most(CLAIMS[:10]) < cost.at_most(CLAIMS) < 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rehearse", "--claim", "nothing"], "no claim 'nothing', allowed: "),
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
