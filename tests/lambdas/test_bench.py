"""The benchmarks of controller and health checker at a reduced size (``make bench-checker bench-health``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lambdas.core.capacity import policies
from tests.measured import checker, health


@pytest.mark.parametrize(
    ("bench", "keys"),
    [(checker, ("policies", policies.DEFAULT, "mixed-asg, calm")), (health, ("scenes", "quiet"))],
    ids=["controller", "health checker"],
)
def test_calls_grow_only_with_pages_and_decisions_are_fast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bench: Any, keys: tuple[str, ...]
) -> None:
    out = tmp_path / "bench.json"
    more = ["--stacks", "60x3"] if bench is checker else []
    assert bench.main(["--out", str(out), "--sizes", "10", "1000", "1500", *more]) == 0
    result = json.loads(out.read_text())
    stable = result
    for key in keys:
        stable = stable[key]
    batches = {size: at["calls"]["batch_get_item"] for size, at in stable.items()}
    memories = 1 if bench is checker else 2
    # The state of the queue is one item more.
    assert batches == {size: memories + -(-(int(size) + memories - 1) // 100) for size in stable}
    other_calls = {size: at["calls_total"] - batches[size] for size, at in stable.items()}
    assert other_calls["10"] == other_calls["1000"] == other_calls["1500"] - 1
    assert "1500" in capsys.readouterr().out
    if bench is checker:
        assert result["policies"].keys() == set(policies.NAMES)
    else:
        assert result["scenes"]["a tenth unhealthy"]["1500"]["requests"] == 40


@pytest.mark.soak
def test_a_fleet_of_ten_thousand_needs_few_calls() -> None:
    """research/scale.md has the number of calls: ``tests/infra/test_service_page.py``."""
    found = checker.measure("spot-fleet", 10_000, "ready-handover", share_noticed=0.1)
    assert found["calls"]["batch_get_item"] == 101
    assert found["calls_total"] - 101 <= 35
    assert found["calls"]["set_desired_capacity"] == 1
    assert found["memory_bytes"] < 400_000
