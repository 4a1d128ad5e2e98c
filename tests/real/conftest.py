"""Fixtures of several tests with real servers."""

from __future__ import annotations

from packages.rabbitmq import broker, pytest_collection_modifyitems

__all__ = ["broker", "pytest_collection_modifyitems"]
