import argparse
import json

import pytest

from gpu_spot.commands.market import replay_deadline as command
from market.deadline.policies import NAMES


@pytest.fixture
def trace(tmp_path):
    samples = ([1] * 40 + [0] * 10) * 40
    file = tmp_path / "pools" / "zone.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": samples}))
    return file


def call(*arguments):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["replay-deadline", *map(str, arguments)])
    return args.run(args)


def ask(trace, **changed):
    options = {"compute": 10, "deadline": 15, "restart_minutes": 6, "starts": 5, **changed}
    return call("--trace", trace, *(f"--{name.replace('_', '-')}={value}" for name, value in options.items()))


def test_all_policies_are_replayed_in_every_trace_of_a_folder(trace, tmp_path, capsys):
    out = tmp_path / "new" / "out.json"
    assert ask(trace.parent, json=out) == 0
    rows = json.loads(out.read_text())
    assert [row["policy"] for row in rows] == list(NAMES)
    assert [row["policy"] for row in rows if row["default"]] == ["expected-cost"]
    assert all(row["misses"] == 0 and row["jobs"] == 5 and row["cost_vs_bound"] >= 1 for row in rows)
    assert next(row["cost"] for row in rows if row["policy"] == "on-demand") == pytest.approx(1.0)
    assert "expected-cost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": "greedy,gready"}, "deadline policy 'gready' is unknown, allowed: on-demand, greedy"),
        ({"deadline": 10}, "deadline is 10 h, at least compute + restart overhead = 10.1 h"),
        ({"compute": 0}, "compute is 0 s, a number above 0"),
        ({"compute": "nan"}, "--compute is nan, allowed: a finite number"),
        ({"restart_minutes": -1}, "restart_overhead is -60, a number ≥ 0"),
        ({"deadline": 1000}, "pool zone is 166.7 h long, shorter than the deadline of 1000 h"),
        ({"starts": 0}, "--starts is 0, allowed: at least 1"),
        ({"spot_price": "nan"}, "spot_price is nan"),
    ],
)
def test_bad_input_gets_one_line(trace, capsys, changed, message):
    assert ask(trace, **changed) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_trace_gets_one_line(tmp_path, capsys):
    assert ask(tmp_path / "none.json") == 2
    assert "none.json does not exist" in capsys.readouterr().err
    assert ask(tmp_path) == 2
    assert "holds no .json file" in capsys.readouterr().err
