"""Each assumption has a source, a module that uses it, and a fault."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_spot import cli
from gpu_spot.aws_check import cost, results, table
from gpu_spot.aws_check.assumption import GROUPS, Assumption
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.trial import Outcome
from pulumi_declared.errors import UserError
from tests.aws_check.faults import FAULTS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "aws-check.md").read_text("utf-8")


def test_every_assumption_has_a_unique_name_and_a_fault() -> None:
    names = [assumption.name for assumption in ASSUMPTIONS]
    assert len(set(names)) == len(names)
    assert set(names) == FAULTS.keys()


def test_the_module_that_uses_an_assumption_exists() -> None:
    def is_whole(assumption: Assumption) -> bool:
        return bool(
            (REPOSITORY / assumption.used_by).is_file() and assumption.source and assumption.falsified_by
        )

    assert [assumption.name for assumption in ASSUMPTIONS if not is_whole(assumption)] == []


def test_the_page_is_made_from_the_results() -> None:
    assert table.page(ASSUMPTIONS, results.read(REPOSITORY / results.FILE)) == PAGE


def test_the_page_shows_each_result_with_region_and_date() -> None:
    first, second, third = ASSUMPTIONS[:3]
    outcomes = [Outcome(first, "held", "a | b"), Outcome(second, "falsified", "no")]
    stored = results.merged({}, outcomes, "us-east-1", "2026-11-22")
    page = table.page((first, second, third), stored)
    assert "Results: 1 falsified, 1 held, 1 not run on AWS yet." in page
    assert "**held** in us-east-1, 2026-11-22: a \\| b" in page


def test_a_result_counts_for_the_statement_that_was_tested() -> None:
    first = ASSUMPTIONS[0]
    stored = results.merged({}, [Outcome(first, "held", "seen")], "us-east-1", "2026-11-22")
    assert results.result_of(first, stored) is not None
    assert results.result_of(replace(first, statement="Another."), stored) is None


def test_a_test_that_did_not_run_replaces_no_result(tmp_path: Path) -> None:
    first = ASSUMPTIONS[0]
    stored = results.merged({}, [Outcome(first, "held", "seen")], "us-east-1", "2026-11-22")
    after = results.merged(stored, [Outcome(first, "not tried", "denied")], "us-east-1", "2026-11-23")
    assert after == stored
    file = tmp_path / "results.json"
    file.write_text(results.dumps(after), "utf-8")
    assert results.read(file) == after
    file.write_text("[]", "utf-8")
    with pytest.raises(UserError, match="not a file of results"):
        results.read(file)


@pytest.mark.parametrize("dollars", GROUPS)
def test_a_group_costs_at_most_its_dollars(dollars: int) -> None:
    chosen = [a for a in ASSUMPTIONS if a.dollars <= dollars and not a.by_name_only]
    assert 0 < cost.max_cost(chosen) <= dollars


def test_a_region_without_prices_counts_double() -> None:
    chosen = [a for a in ASSUMPTIONS if a.dollars == 1]
    assert cost.max_cost(chosen, "mx-central-1") == pytest.approx(2 * cost.max_cost(chosen), abs=0.06)


def test_tests_that_share_a_resource_pay_for_it_once() -> None:
    sharing = [a for a in ASSUMPTIONS if any(r.name == "broker" for r in a.resources)]
    assert len(sharing) > 1
    assert cost.max_cost(sharing) == cost.max_cost(sharing[:1])


def test_gpu_instances_need_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["aws-check", "--dry-run", "--dollars", "25", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    named = [a.name for a in ASSUMPTIONS if a.by_name_only]
    assert named
    shown = {outcome["name"]: outcome["seen"] for outcome in document["outcomes"]}
    assert not shown.keys() & set(named)
    assert "dynamodb:UpdateItem" not in shown["longest-delay"]
    assert "sqs:SendMessage" in shown["longest-delay"]
    assert cli.main(["aws-check", "--dry-run", "--only", *named, "--dollars", "5"]) == 0


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
