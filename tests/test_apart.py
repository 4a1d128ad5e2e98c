"""Processes of ``tests.apart`` start with the loaded modules and share no state."""

from __future__ import annotations

import sys

from pulumi_on_moto.fixes.speedups import models
from tests.apart import apart

CALLS: list[str] = []


def loaded(name: str) -> bool:
    CALLS.append(name)
    return name in sys.modules and len(CALLS) == 1


def test_the_server_has_imported_the_provider_and_each_process_is_fresh() -> None:
    # If the server cannot import its list, it fails silently and each process imports the modules.
    assert apart(loaded, "pulumi_aws.ec2.instance")
    assert apart(loaded, "rehearsal.rehearse")


def read() -> int:
    return models._read.cache_info().currsize


def test_the_server_has_read_the_models_of_services() -> None:
    assert apart(read) >= 30
