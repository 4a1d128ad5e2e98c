"""A deployed stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.stack import Stack, deployed


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with deployed(monkeypatch) as made:
        yield made
