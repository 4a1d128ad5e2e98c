"""On-premises workers of a deployed stack, and replacement requests of the health checker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.on_premises import END, FAULTY, HOSTS, STUCK, TARGET, VANISH, played

pytestmark = pytest.mark.soak

NOTICED = VANISH + 2
"""The heartbeat of a minute ago is believed, that of two minutes ago is not."""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(played)


def working(seen: dict[str, Any], tick: int) -> int:
    count: int = seen["seen"][tick]["working"]
    return count


def test_hosts_stand_in_for_instances_once_they_have_been_there_for_a_while(seen: dict[str, Any]) -> None:
    assert working(seen, 5) == TARGET
    assert working(seen, STUCK - 1) == TARGET - len(HOSTS)
    assert any(f"{len(HOSTS)} on premises" in reason for reason in seen["reasons"])


def test_when_they_all_vanish_aws_fills_within_one_boot(seen: dict[str, Any]) -> None:
    assert working(seen, NOTICED - 1) == TARGET - len(HOSTS)
    assert working(seen, NOTICED + seen["boot"]) >= TARGET
    assert working(seen, END - 1) == TARGET  # on-demand, which was there first, has gone again


def test_one_that_does_not_serve_is_replaced_at_once(seen: dict[str, Any]) -> None:
    assert seen["seen"][STUCK]["released"] == [seen["requests"]["stuck"]]
    assert working(seen, STUCK + seen["boot"]) >= TARGET - len(HOSTS)
    assert working(seen, FAULTY - 1) == TARGET - len(HOSTS)


def test_one_that_serves_goes_when_another_serves(seen: dict[str, Any]) -> None:
    [tick] = [t for t, one in seen["seen"].items() if seen["requests"]["xid"] in one["released"]]
    assert FAULTY < tick <= FAULTY + seen["boot"]
    assert seen["seen"][tick]["left"] >= TARGET - len(HOSTS)
