"""Which deliveries of a request are run and which are acknowledged, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spot_work.queue.consumer import Delivery
from spot_work.rabbitmq import settled
from spot_work.rabbitmq.settled import SettledRequests
from spot_work.request.message import Request


def delivery(
    channel: Any, id_: str = "a", *, is_repeat: bool = False, sent_at: float | None = 1.0
) -> Delivery:
    request = Request(id_, 1, is_repeat=is_repeat, reply_to="r", sent_at=sent_at)
    return Delivery(request, SimpleNamespace(channel=channel))


def channel(*, is_open: bool = True) -> Any:
    return SimpleNamespace(is_open=is_open)


def test_a_repetition_is_acknowledged_in_place_of_the_delivery_that_runs() -> None:
    requests, first = SettledRequests(), delivery(channel())
    assert requests.begin(first)
    first.handle.channel.is_open = False
    again = delivery(channel(), is_repeat=True)
    assert not requests.begin(again)
    again.handle.channel.is_open = False
    third = delivery(channel(), is_repeat=True)
    assert not requests.begin(third)
    assert requests.end(first, is_settled=True).handle is third.handle
    assert requests.has(delivery(channel(), is_repeat=True))


def test_a_second_message_of_the_same_channel_runs_and_each_is_acknowledged() -> None:
    requests, shared = SettledRequests(), channel()
    first, second = delivery(shared), delivery(shared, is_repeat=True)
    assert requests.begin(first)
    assert requests.begin(second)
    assert requests.end(second, is_settled=True).handle is second.handle
    assert requests.end(first, is_settled=True).handle is first.handle


def test_what_was_requeued_runs_again() -> None:
    requests, first = SettledRequests(), delivery(channel())
    assert requests.begin(first)
    assert requests.end(first).handle is first.handle
    again = delivery(channel(), is_repeat=True)
    assert not requests.has(again)
    assert requests.begin(again)


def test_ids_of_other_clients_and_first_deliveries_are_not_compared() -> None:
    requests, foreign = SettledRequests(), delivery(channel(is_open=False), sent_at=None)
    for one in (foreign, delivery(channel(), "b")):
        assert requests.begin(one)
        assert requests.end(one, is_settled=True) == one
    assert not requests.has(delivery(channel(), is_repeat=True, sent_at=None))
    assert requests.begin(delivery(channel(), is_repeat=True, sent_at=None))
    assert not requests.has(delivery(channel(), "b"))  # not a repeat: another one with the same id


def test_the_memory_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(settled, "_MAX_SETTLED", 2)
    requests = SettledRequests()
    for id_ in "abc":
        requests.end(delivery(channel(), id_), is_settled=True)
    assert [requests.has(delivery(channel(), id_, is_repeat=True)) for id_ in "abc"] == [False, True, True]
