"""The group of most controller tests: four ready Spot instances, a target of four."""

from __future__ import annotations

import pytest

from tests.fakes.aws import ROOT, FakeAws, config
from tests.lambdas.single_group import NOW


@pytest.fixture
def aws() -> FakeAws:
    fake = FakeAws(parameters={f"{ROOT}/inference/config": config(), f"{ROOT}/inference/target": "4"})
    fake.add_group("primary", desired=4)
    fake.add_group("fallback")
    for n in range(4):
        fake.add_instance(
            "primary", f"i-{n}", spot=True, launched=NOW - 3600, heartbeat=NOW - 5, since=NOW - 3400
        )
    return fake
