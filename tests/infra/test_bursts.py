"""Warnings of a preview: an allowed wait that a burst exceeds, and what would hold it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.catalogue.on_demand_prices import price
from infra.schema.services.bursts import held_wait, needed_headroom
from infra.settings import load_settings
from tests.infra.declared import ROOT
from tests.infra.queues import EXISTING

CAPACITY = {"kind": "mixed-asg", "target": 8, "max": 20, "instanceTypes": ["g6.xlarge"]}


def warnings(scaling: dict[str, Any]) -> list[str]:
    raw = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
    raw["gpu-spot:services"] = [
        {"name": "ocr", "command": ["serve"], "queue": EXISTING, "scaling": scaling, "capacity": CAPACITY}
    ]
    return [line for line in load_settings(raw).warnings() if "waitSeconds" in line]


def test_a_wait_that_a_burst_exceeds_is_answered_with_what_can_be_held_and_its_price() -> None:
    [line] = warnings({"waitSeconds": 1})
    dollars = 2 * (price("g6.xlarge", "us-west-2") or 0.0)  # a quarter of eight
    assert line.startswith("gpu-spot:services[0].scaling.waitSeconds: 1 s is less than a burst allows")
    assert "requests wait up to 48 s; scaling.headroom 0.25 holds 1 s" in line
    assert f"for up to {dollars:.2f} dollars an hour at a load of 8" in line


@pytest.mark.parametrize("scaling", [{}, {"waitSeconds": 48}, {"waitSeconds": 1, "headroom": 0.25}])
def test_a_wait_that_can_be_held_is_no_warning(scaling: dict[str, Any]) -> None:
    assert warnings(scaling) == []


@given(st.floats(1, 3600))
def test_the_needed_headroom_holds_the_wait(wait: float) -> None:
    needed = needed_headroom(wait)
    assert held_wait(needed) <= wait + 1e-6
    if needed >= 0.01:
        assert held_wait(needed - 0.0101) > wait - 1e-6
