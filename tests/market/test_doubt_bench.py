"""The grid of doubts at a reduced count, and what it reckons with: the same code as the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.market import doubt
from bench.parts.cells import cells
from lambdas.core.capacity.policies import DEFAULT
from market.comparison.regret import Mark, cheapest, dominates
from market.plots import regrets
from market.rules import Rules

ENDS = ("spot-only", "on-demand")


@pytest.mark.long
def test_nothing_dominates_the_default_and_its_regret_is_small(tmp_path: Path, traces: Path | None) -> None:
    out = tmp_path / "doubt.json"
    options = ["--out", str(out), "--docs", str(tmp_path / "docs"), "--cells", "6", "--days", "2"]
    doubt.main([*options, "--scenarios", "2"])
    result = json.loads(out.read_text())
    assert result["source"] == ("traces" if traces else "model")
    assert (result["cells"], len(result["rows"])) == (6, 6 * len(doubt.CONTENDERS))
    # That nothing beats it is said of the traces; of the few days drawn from the model one may go.
    assert result["dominated"] <= (0 if traces else 1)
    assert result["mean_regret"] <= 0.01
    assert min(result["regret_of"].values()) >= 3 * result["mean_regret"]
    for row in result["rows"]:
        assert row["cost_with_everything"] >= row["cost"] > 0
    assert not (tmp_path / "docs").exists()  # a reduced count is not published


def test_the_grid_has_sixty_worlds_and_its_rules_are_rules() -> None:
    grid = cells(doubt.AXES, doubt.TOGETHER)
    assert len(grid) >= 60
    for cell in grid:
        world = doubt.changed(doubt.AXES, cell)
        for own in ("times", "warm", "own_prices"):
            world.pop(own, None)
        Rules(**world)


def test_at_an_availability_the_cheapest_is_one_that_has_it_or_a_mixture_of_one_family() -> None:
    marks = [
        Mark("spot-only", "spot-only", 0.9, 0.3),
        Mark("a@1", "a", 0.95, 0.4),
        Mark("a@2", "a", 0.99, 0.5),
        Mark("b", "b", 0.97, 0.41),
        Mark("on-demand", "on-demand", 1.0, 1.0),
    ]
    assert cheapest(marks, ENDS, 0.97) == pytest.approx(0.41)
    assert cheapest([m for m in marks if m.family != "b"], ENDS, 0.97) == pytest.approx(0.45)
    assert cheapest(marks, ENDS, 0.995) == pytest.approx(0.75)  # from a@2 to on-demand
    assert cheapest(marks, (), 0.995) == 1.0
    assert cheapest(marks[:1], ENDS, 0.99) == float("inf")


@pytest.mark.parametrize(
    ("availability", "cost", "is_dominated"),
    [
        (0.99, 0.5, False),  # the same
        (0.99, 0.4976, False),  # cheaper within the tolerance
        (0.99, 0.497, True),
        (0.9901, 0.5, True),
        (0.99004, 0.4999, False),
        (0.9, 0.1, False),  # less available
        (0.999, 0.501, False),  # dearer
    ],
)
def test_which_policy_dominates(availability: float, cost: float, is_dominated: bool) -> None:
    assert dominates(Mark("b", "b", availability, cost), Mark("a", "a", 0.99, 0.5)) is is_dominated


def test_the_picture_has_a_dot_for_every_world_and_names_it() -> None:
    picture = regrets.svg(
        {DEFAULT: [("as told", 0.0), ("drops <over>", 0.02)], "other": [("as told", 1.5), ("b", None)]}
    )
    assert picture.count("<circle") == 4
    assert "b: does not get there" in picture
    assert "drops &lt;over&gt;: 2.00 %" in picture
    assert ">1000 %<" in picture
