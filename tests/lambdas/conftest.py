"""The group of most controller tests: four ready Spot instances, a target of four."""

from __future__ import annotations

import pytest

from tests.fakes.aws import FakeAws
from tests.lambdas.single_group import add_ready, declared


@pytest.fixture
def aws() -> FakeAws:
    fake = declared(target=4, primary=4)
    add_ready(fake, "primary", *(f"i-{n}" for n in range(4)))
    return fake
