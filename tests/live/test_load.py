"""A service under load in the local cloud: the deployed scaler reads its queue and sets the target."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.loads import MINUTES, MOST, loaded

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(loaded)


def test_the_scaler_follows_the_load_and_the_account_its_target(
    seen: dict[str, Any],
) -> None:
    spans, account = seen["spans"], seen["account"]
    assert len(spans) == len(account.minutes) == MINUTES  # every minute is played
    assert spans[0].target == 2
    # 1.5 a second are six workers of a quarter at work.
    assert 6 <= spans[-1].target <= MOST
    assert account.minutes[-1].ready >= 6
    assert account.minutes[-1].waiting < 60
    assert [minute.target for minute in account.minutes[1:]] == [span.target for span in spans[1:]]


def test_requests_wait_only_while_there_is_no_worker(seen: dict[str, Any]) -> None:
    first, *_, last = seen["account"].waits
    assert first.half > 60 > last.p99_seconds


def test_the_bill_covers_running_instances(seen: dict[str, Any]) -> None:
    account, spans = seen["account"], seen["spans"]
    paid = sum(span.spot + span.on_demand for span in spans[:-1])
    assert 0.2 * paid < account.paid / account.peak.hourly * 60 <= 1.6 * paid
    assert account.on_demand > account.paid


def test_a_group_without_scaling_is_rejected(seen: dict[str, Any]) -> None:
    assert seen["refused"] == (
        "group 'inference' has no scaling, allowed with a load: a service with scaling"
    )
