"""The broker of the tests."""

from __future__ import annotations

from rabbitmq import broker, pytest_collection_modifyitems

__all__ = ["broker", "pytest_collection_modifyitems"]
