"""The supervisor that tests of tenants share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tenants.supervised import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
