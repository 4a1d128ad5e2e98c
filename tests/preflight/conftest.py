"""An empty account for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from moto import mock_aws

from pulumi_on_moto import AwsClients
from tests.preflight.worlds import REGION


@pytest.fixture
def clients() -> Iterator[AwsClients]:
    # Without the fixes of a sandbox, which take two seconds: the checks only read.
    with mock_aws(), contextlib.ExitStack() as closing:
        yield AwsClients(REGION, closing)
