import itertools
import json

import pytest

from bench.fit.deadline import TABLE, fingerprint
from bench.market.deadline import draw, grouped, main, tasks
from bench.parts.cells import cells
from bench.parts.deadline.jobs import RATIOS, Task
from bench.parts.deadline.uncertainty import AXES, TOGETHER, dominates, grid

MOST = {"1.15": 1.10, "1.3": 1.08, "1.5": 1.07, "2.0": 1.06}
BELOW_UNIFORM_PROGRESS = {"1.15": 0.08, "1.3": 0.08, "1.5": 0.10, "2.0": 0.14}
FEW_STARTS = 0.01
"""What a mean over eight starts a pool may be off; the whole run is `make bench-deadline`."""


def test_the_default_policy_holds_its_figures_on_traces_that_it_was_not_fitted_on(traces, tmp_path):
    out = tmp_path / "deadline.json"
    assert main(["--starts", "8", "--cells", "3", "--stack-pools", "0", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["source"] == ("traces" if traces else "drawn from the fitted hazards")
    assert figures["replays"] == figures["pools"] * 8 * 4 * len(RATIOS)
    assert figures["misses"] == figures["misses_of_baselines"] == 0
    assert figures["worst_vs_best_baseline"] <= 1.02
    grid = figures["grid"]
    assert (grid["cells"], len(grid["rows"])) == (3, 9)
    assert grid["missed"] == grid["dominated"] == 0
    for ratio, most in MOST.items():
        assert figures["cost_vs_clairvoyant"][ratio] <= most + FEW_STARTS
        below = 1 - figures["cost_vs_uniform_progress"][ratio]
        assert below >= BELOW_UNIFORM_PROGRESS[ratio] - FEW_STARTS


def test_the_grid_holds_every_doubt_alone_and_every_two_in_one():
    made = cells(AXES, TOGETHER)
    values = [(axis, value) for axis, of_axis in AXES.items() for value in of_axis]
    assert made[0] == {}
    assert [dict([value]) for value in values] == made[1 : len(values) + 1]
    for one, other in itertools.combinations(values, 2):
        if one[0] != other[0]:
            assert any({one, other} <= set(cell.items()) for cell in made), (one, other)


def test_jobs_missed_under_all_uncertainty_were_infeasible_and_reported_late():
    """Every axis doubted at once, with and without earlier jobs, in a pool of each kind."""
    worlds = [
        {axis: next(iter(values)) for axis, values in AXES.items() if axis not in without}
        for without in (("spot price",), ("spot price", "earlier jobs"))
    ]
    work = [Task(name, draw(name, 1), 20, 1, None) for name in ("poor", "middling", "good")]
    figures = grid(work, worlds, map)
    assert figures["jobs"] == len(worlds) * len(work) * 8
    assert figures["missed"] > 0
    assert figures["avoidable"] == figures["unsaid"] == 0


def test_a_policy_dominates_that_is_cheaper_and_misses_no_more():
    def row(cost, missed):
        return {"cost": cost, "missed": missed}

    assert dominates(row(0.99, 1), row(1.0, 1))
    assert not dominates(row(0.996, 0), row(1.0, 1))
    assert not dominates(row(0.9, 2), row(1.0, 1))


def test_a_trace_is_never_judged_by_a_table_that_has_seen_it(monkeypatch):
    known, other, new = draw("good", 1), draw("poor", 1), draw("poor", 2)
    text = json.dumps({"fitted_on": [fingerprint(known)]})
    monkeypatch.setattr(type(TABLE), "read_text", lambda *_, **__: text)
    asked: list[int] = []

    class Executor:
        def map(self, _, groups, prices):
            groups = list(groups)
            asked.extend(len(group) for group in groups)
            return [{"fitted": [fingerprint(trace) for trace in group]} for group in groups]

    made = tasks({"a/x": known, "b/y": other, "b/z": new}, 1, [0.3], Executor())
    assert asked == [2]
    by_name = {task.name: task.table for task in made}
    assert fingerprint(known) not in by_name["a/x"]["fitted"]
    assert by_name["b/y"] is by_name["b/z"] is None


@pytest.mark.parametrize(
    ("names", "folds"),
    [
        (["one/us-west-2a_p.json", "two/us-west-2a_p.json"], ["one", "two"]),
        (
            ["us-west-2a_p.json", "us-west-2b_p.json", "us-east-1a_p.json"],
            ["us-west-2", "us-west-2", "us-east-1"],
        ),
        (["us-west-2a_p.json", "us-west-2b_p.json"], ["us-west-2a_p.json", "us-west-2b_p.json"]),
    ],
)
def test_folds_are_folders_else_regions_else_traces(names, folds):
    assert list(grouped(names).values()) == folds
