"""The package stands alone: run by ``alone.py``, nothing else of the repository can be imported."""

from __future__ import annotations

import importlib.util
import sys

import pytest

OTHERS = ("gpu_spot", "infra", "lambdas", "userdata")


@pytest.mark.skipif(not sys.flags.no_site, reason="python -I -S pulumi_on_moto/tests/alone.py shows it")
@pytest.mark.parametrize("name", OTHERS)
def test_the_rest_of_the_repository_is_out_of_reach(name: str) -> None:
    assert importlib.util.find_spec(name) is None
