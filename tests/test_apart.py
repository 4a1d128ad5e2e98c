"""The processes of ``tests.apart`` start with what they need, and share nothing that they do."""

from __future__ import annotations

import sys

from pulumi_on_moto.fixes.speedups import models
from tests.apart import apart

SEEN: list[str] = []


def loaded(name: str) -> bool:
    SEEN.append(name)
    return name in sys.modules and len(SEEN) == 1


def test_the_server_has_imported_the_provider_and_each_process_is_fresh() -> None:
    # A server that cannot import its list says nothing, and every process would import for itself.
    assert apart(loaded, "pulumi_aws.ec2.instance")
    assert apart(loaded, "rehearsal.rehearse")


def read() -> int:
    return models._read.cache_info().currsize


def test_the_server_has_read_the_models_of_services() -> None:
    assert apart(read) >= 30
