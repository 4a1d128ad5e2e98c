"""Fixtures of several tests with real servers."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rehearsal.machines.real.broker import RabbitServer

# pika 1.4.4 leaves the socket of a refused or reset connection to the collector.
_LEFT_SOCKETS = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore sockets that clients of a broker left open."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item.module, RabbitServer.__name__):
            item.add_marker(_LEFT_SOCKETS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A RabbitMQ server of a module's tests."""
    started = RabbitServer(tmp_path_factory.mktemp("broker"))
    try:
        started.start()
        yield started
    finally:
        started.remove()
        gc.collect()  # sockets that are left open are not another test's
