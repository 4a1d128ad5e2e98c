"""The table of docs/forecast.md, what stacks cost before the first GPU hour, is the forecast's own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gpu_spot.declared import stackfile
from gpu_spot.forecast import fixed_costs
from gpu_spot.preflight.prices import Line
from gpu_spot.preflight.stack import declare
from tests.apart import apart

ROOT: Final = Path(__file__).parents[2]
COLUMNS: Final = (
    ("NAT gateways", "public IPv4 addresses", "interface endpoints × zones"),
    ("GiB of stopped warm instances", "GiB of proxies", "GiB of system nodes", "MiB/s of EFS"),
    ("alarms", "dashboards", "custom metrics"),
    (
        *("function requests", "function GiB-seconds", "GB of logs", "heartbeats, million"),
        *("items written, million", "items read, million", "queue requests, million"),
    ),
    ("EKS control planes", "system nodes", "broker", "load balancers", "proxies", "secrets", "KMS keys"),
)
MOST: Final = {"research": 12, "dev": 45, "ocr": 120, "prod": 200, "eks": 280}


def lines_of(stack: str) -> list[Line]:
    """Return the lines of a stack, of which some may have no price."""
    return [line for line in fixed_costs.lines(declare(stackfile.load(ROOT, stack)), 0.0) if line.count]


def cells(lines: list[Line]) -> list[str]:
    """Return the sums by column and in total; each line has a column."""
    columns = [[line for line in lines if line.item.startswith(items)] for items in COLUMNS]
    assert sorted(line.item for column in columns for line in column) == sorted(line.item for line in lines)
    return [
        f"{sum(line.cost for line in column):.0f}"
        + " + not priced" * any(line.unit_price is None for line in column)
        for column in (*columns, lines)
    ]


@pytest.mark.parametrize("stack", MOST)
def test_the_table_is_the_forecasts(stack: str) -> None:
    lines = apart(lines_of, stack)
    assert sum(line.cost for line in lines) <= MOST[stack]
    row = f"| {' | '.join([stack, *cells(lines)])} |"
    assert row in (ROOT / "docs" / "forecast.md").read_text("utf-8").splitlines(), row
