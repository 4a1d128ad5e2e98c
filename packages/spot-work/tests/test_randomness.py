"""Delays and samples leave the global generator to users' functions."""

from __future__ import annotations

import random
from unittest.mock import Mock

from spot_work.pod import DeletionCost
from spot_work.queue.backoff import Backoff
from spot_work.sqs import reply_queue


def test_the_global_generator_is_as_before() -> None:
    random.seed(1)
    before = random.getstate()
    Backoff().next_delay()
    DeletionCost(lambda *_: None).set_working(True)
    client = Mock()
    client.list_queues.return_value = {"QueueUrls": ["a", "b"]}
    client.list_queue_tags.return_value = {}
    assert reply_queue.delete_abandoned(client, "work") == 0
    assert client.list_queue_tags.call_count == 2
    assert random.getstate() == before


def test_delays_differ_where_functions_seed_alike() -> None:
    delays = set()
    for _ in range(2):
        random.seed(1)
        delays.add(Backoff().next_delay())
    assert len(delays) == 2
