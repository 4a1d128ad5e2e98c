from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def metadata_server(clock: FakeClock) -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()
