"""What is stored of HTTP services, word for word: an example of each item and text, and its value."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from contracts import watched_queue
from contracts.group import config as group_config
from contracts.registry import http_state, proxy_state
from contracts.registry.http_state import HttpState, WorkerTraffic
from contracts.registry.proxy_state import ProxyState, WorkerRequests
from contracts.stored import ContractError
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues import proxies
from lambdas.core.queues.proxies import Flow, ProxyCounts, ProxyHistory, WorkerCounts, WorkerMeans
from tests.contracts.examples import CONFIG, numbers, texts


def row_of(worker: str, *numbers: str) -> dict[str, Any]:
    """Return the attribute of the workers, of which there is one."""
    return {"workers": {"L": [{"L": [{"S": worker}, *({"N": number} for number in numbers)]}]}}


PROXY_ARN = "arn:aws:ec2:us-west-2:123456789012:instance/i-9"
PROXY = ProxyState(
    observed_at=1800000000.5,
    started_at=1799990000.0,
    waiting=12,
    in_flight=3,
    oldest_seconds=4.5,
    arrived=900,
    ended=880,
    refused=4,
    cut=1,
    repeated=2,
    workers=(WorkerRequests("i-1", 3, 440, 5, 2, 200.5, 400.25),),
)
PROXY_ITEM = {
    **texts(group=f"ocr@proxy#{PROXY_ARN}", worker="proxy"),
    **numbers(observedAt="1800000000.5", startedAt="1799990000", waiting="12", inFlight="3"),
    **numbers(oldestSeconds="4.5", arrived="900", ended="880", refused="4", cut="1", repeated="2"),
    **row_of("i-1", "3", "440", "5", "2", "200.5", "400.25"),
    **numbers(expires="1800003600"),
}
HTTP = HttpState(
    *(1800000000.5, 12, 3, 4.5, 1.5, 1.25, 0.25, 3, 1),
    (WorkerTraffic("i-1", 3, 1799990000.0, 440, 5, 300.0, 1.25, 0.125, 0.75, 2.5),),
)
HTTP_ITEM = {
    **texts(group="ocr@queue", worker="http"),
    **numbers(observedAt="1800000000.5", waiting="12", inFlight="3", oldestSeconds="4.5"),
    **numbers(arrivalRate="1.5", endRate="1.25", refusedRate="0.25", proxies="3", unreadable="1"),
    **row_of("i-1", "3", "1799990000", "440", "5", "300", "1.25", "0.125", "0.75", "2.5"),
    **numbers(expires="1800604800"),
}
PROXY_HISTORY = ProxyHistory(
    1800000000.0,
    {
        "i-9": ProxyCounts(
            1799999990.5,
            900,
            880,
            4,
            Flow(12, 3, 1.5, 1.25, 0.25),
            {"i-1/3": WorkerCounts(440, 5, 200.5, 400.25)},
        )
    },
    {
        "i-1/3": WorkerMeans(
            *(1800000000.0, 1799990000.0, 440, 5, 300.0, 1.25, 0.125, 0.75, 2.5, 1799999940.0)
        )
    },
)
PROXY_HISTORY_TEXT = (
    '[1800000000.0,{"i-9":[1799999990.5,900,880,4,[12,3,1.5,1.25,0.25],{"i-1/3":[440,5,200.5,400.25]}]},'
    '{"i-1/3":[1800000000.0,1799990000.0,440,5,300.0,1.25,0.125,0.75,2.5,1799999940.0]}]'
)


def test_a_proxy_is_a_row_of_the_registry() -> None:
    assert proxy_state.dump("ocr", PROXY_ARN, PROXY) == PROXY_ITEM
    assert proxy_state.parse(PROXY_ITEM) == PROXY
    assert proxy_state.parse({**PROXY_ITEM, "later": {"BOOL": True}}) == PROXY
    without = ("refused", "cut", "repeated", "workers")
    least = proxy_state.parse({key: value for key, value in PROXY_ITEM.items() if key not in without})
    assert (least.refused, least.workers) == (0, ())


@pytest.mark.parametrize(
    "change",
    [
        {"arrived": {"N": "-1"}},
        {"oldestSeconds": {"N": "Infinity"}},
        {"observedAt": {"S": "now"}},
        row_of("i-1", *["1"] * 5),
        row_of("i-1", "0", "1", "2", "0", "0", "0"),  # more failed than ended
    ],
)
def test_an_impossible_row_of_a_proxy_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="malformed item of a proxy"):
        proxy_state.parse({**PROXY_ITEM, **change})


def test_a_proxys_row_is_fresh_for_a_minute() -> None:
    assert PROXY.is_fresh(PROXY.observed_at + proxy_state.STALE_SECONDS)
    assert not PROXY.is_fresh(PROXY.observed_at + proxy_state.STALE_SECONDS + 1)
    assert not PROXY.is_fresh(PROXY.observed_at - proxy_state.STALE_SECONDS - 1)


def test_requests_at_all_proxies_are_a_row_of_the_registry() -> None:
    assert http_state.dump("ocr", HTTP) == HTTP_ITEM
    assert http_state.parse(HTTP_ITEM) == HTTP
    with pytest.raises(ContractError, match="malformed item of a service's proxies"):
        http_state.parse({**HTTP_ITEM, "arrivalRate": {"N": "-1"}})


def test_proxies_are_watched_as_queues_are() -> None:
    watched = (WatchedQueue("chat", "http", "chat", "", requests_per_worker=16),)
    assert watched_queue.dumps(watched) == '[["chat","http","chat","","",16]]'
    assert watched_queue.parse('[["chat","http","chat","","",16]]') == watched


def test_the_watchers_memory_of_proxies_is_stored_word_for_word() -> None:
    assert proxies.dumps(PROXY_HISTORY) == PROXY_HISTORY_TEXT
    assert proxies.parse(PROXY_HISTORY_TEXT) == PROXY_HISTORY


def test_the_examples_leave_no_field_at_its_default() -> None:
    for value in (PROXY, HTTP, PROXY_HISTORY):
        assert not {None, 0, ()} & {member for member in astuple(value) if isinstance(member, int | tuple)}


def test_the_configuration_of_a_group_without_http_stays_as_it_was() -> None:
    assert "httpConcurrency" not in group_config.dumps(replace(CONFIG, http_concurrency=0))
    assert group_config.parse(group_config.dumps(CONFIG)).http_concurrency == 16
