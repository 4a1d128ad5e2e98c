"""An empty moto account for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pulumi_on_moto import AwsClients
from tests.models import moto
from tests.preflight.worlds import REGION


@pytest.fixture
def clients() -> Iterator[AwsClients]:
    # Without the fixes of a sandbox, which take two seconds: the checks only read.
    with moto(), contextlib.ExitStack() as closing:
        yield AwsClients(REGION, closing)
