"""Fixtures of several tests with real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rehearsal.machines.real.broker import RabbitServer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A RabbitMQ server of a module's tests."""
    started = RabbitServer(tmp_path_factory.mktemp("broker"))
    try:
        started.start()
        yield started
    finally:
        started.remove()
