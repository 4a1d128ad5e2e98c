"""The benchmark of the controller at a reduced size; ``make bench-checker`` runs it whole."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from bench.functions.checker import broken as broken_in
from bench.functions.checker import figures, main, measure
from lambdas.core.capacity import policies


def test_calls_grow_only_with_pages_and_decisions_are_fast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "checker.json"
    assert main(["--out", str(out), "--sizes", "10", "1000", "1500"]) == 0
    result = json.loads(out.read_text())
    assert result["policies"].keys() == set(policies.NAMES)
    stable = result["policies"][policies.DEFAULT]["mixed-asg, calm"]
    batches = {size: at["calls"]["batch_get_item"] for size, at in stable.items()}
    assert batches == {"10": 1, "1000": 10, "1500": 15}
    other_calls = {size: at["calls_total"] - batches[size] for size, at in stable.items()}
    assert other_calls["10"] == other_calls["1000"] == other_calls["1500"] - 1
    assert "1500" in capsys.readouterr().out


@pytest.mark.soak
def test_a_fleet_of_ten_thousand_needs_few_calls() -> None:
    """docs/scale.md has the number of calls: ``tests/infra/test_scale_page.py``."""
    found = measure("spot-fleet", 10_000, "ready-handover", share_noticed=0.1)
    assert found["calls"]["batch_get_item"] == 100
    assert found["calls_total"] - 100 <= 30
    assert found["calls"]["set_desired_capacity"] == 1
    assert found["memory_bytes"] < 400_000


def test_violations_are_reported() -> None:
    found = figures([10], ["ready-handover"])
    assert broken_in(found) == []
    name, sizes = next(iter(found["ready-handover"].items()))
    sizes["20"] = copy.deepcopy(sizes["10"]) | {"decide_ms": 51.0, "memory_bytes": 500_000}
    sizes["20"]["calls_beyond_further_pages"] += 1
    assert broken_in(found) == [
        f"ready-handover, {name}: calls beyond further pages are [8, 9], not equal",
        f"ready-handover, {name}, 20: decide() takes 51.0 ms",
        f"ready-handover, {name}, 20: memory has 500000 bytes",
    ]
