"""Acknowledgements that are sent together, at a broker that knows what each of them covers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spot_work.rabbitmq.consumer import RabbitMQConsumer


class Channel:
    """A channel whose broker closes it for the acknowledgement of a delivery that is not open."""

    def __init__(self, deliveries: int) -> None:
        self.open = set(range(1, deliveries + 1))
        self.acked: set[int] = set()
        self.frames = 0

    def basic_ack(self, tag: int, *, multiple: bool = False) -> None:
        covered = {t for t in self.open if t <= tag} if multiple else {tag}
        assert tag in self.open
        self.open -= covered
        self.acked |= covered
        self.frames += 1


def consumer(deliveries: int) -> Any:
    return SimpleNamespace(_unsettled=dict.fromkeys(range(1, deliveries + 1)), _acked=[])


@given(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(1, n + 1)))), st.data()
)
def test_what_is_acknowledged_is_what_was_settled(drawn: tuple[int, list[int]], data: st.DataObject) -> None:
    deliveries, order = drawn
    channel, receiver = Channel(deliveries), consumer(deliveries)
    settled: set[int] = set()
    while order:
        group, order = order[: (size := data.draw(st.integers(1, len(order))))], order[size:]
        settled.update(group)
        receiver._acked.extend(group)
        RabbitMQConsumer._send_acks(receiver, channel)
        assert channel.acked == settled
        assert set(receiver._unsettled) == channel.open


def test_deliveries_that_are_settled_in_their_order_are_acknowledged_once() -> None:
    channel, receiver = Channel(9), consumer(9)
    receiver._acked.extend([3, 1, 2, 9])
    RabbitMQConsumer._send_acks(receiver, channel)
    assert (channel.acked, channel.frames) == ({1, 2, 3, 9}, 2)
