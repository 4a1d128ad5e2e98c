"""An HTTP service on Kubernetes with Debian's HAProxy: what callers notice when pods end."""

from __future__ import annotations

import time

import pytest

from rehearsal.http import load_client, play
from rehearsal.http.load_client import LoadConfig
from rehearsal.http.play import HttpScript
from tests.real import pod_plays
from tests.waiting import wait_until

SCRIPT = HttpScript(hosts=3, token_seconds=0.02, concurrency=4)


def test_callers_notice_no_deletion_and_of_a_death_only_what_must_not_be_repeated() -> None:
    with pod_plays.world(SCRIPT) as (running, folder):
        pods, out = running.pods, folder / "requests"
        config = LoadConfig([proxy.address for proxy in running.proxies], rate=40, tokens=10)
        with play.load(config, out):
            time.sleep(0.5)
            [deleted, dies, *_] = pods.names()
            pods.delete(deleted)
            pods.launch()
            wait_until(lambda: pods.has_ended(deleted))
            died_at = time.time()
            pods.kill(dies)
            dead_at = time.time()
            running.wait_ready(2)
            pods.launch(load_seconds=600)
            for proxy in running.proxies:
                wait_until(lambda proxy=proxy: proxy.count_hosts() == 4)  # type: ignore[misc]
                assert proxy.count_ready() == 2  # it is not up before its first check
        records = list(load_client.read(out))
        refused = sum(proxy.state().refused for proxy in running.proxies)
    assert len(records) > 60
    failures = [record for record in records if record.error]
    assert not [record for record in failures if record.is_repeatable]
    around = [(record.at - dead_at, record.at + record.last - died_at) for record in failures]
    assert all(began < 0.5 and ended > -0.5 for began, ended in around), around
    assert len(failures) <= 2 * SCRIPT.concurrency, around  # a killed worker ends when it is scheduled
    assert refused == 0


@pytest.mark.soak
def test_a_roll_out_of_all_pods_fails_no_request() -> None:
    with pod_plays.world(SCRIPT) as (running, folder):
        pods, out = running.pods, folder / "requests"
        config = LoadConfig([proxy.address for proxy in running.proxies], rate=40, tokens=10)
        with play.load(config, out):
            for name in pods.names():
                pods.launch()
                running.wait_ready(SCRIPT.hosts + 1)
                pods.delete(name)
                wait_until(lambda name=name: pods.has_ended(name))  # type: ignore[misc]
        records = list(load_client.read(out))
    assert len(records) > 100
    assert [record for record in records if record.error] == []
