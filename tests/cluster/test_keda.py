"""KEDA itself on the stack's services: from zero and back with work in flight, and without a metric."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.cluster import clusters, controllers, service_plays
from tests.cluster.client import ClusterApi
from tests.cluster.conftest import COUNTS_PROPERTY
from tests.cluster.keda import OUTAGES, PlayedCloudWatch, keda
from tests.cluster.kubelet import PlayedKubelet
from tests.cluster.service_plays import AT_ONCE, GPUS, NAMESPACE, QUEUED_PER_WORKER, ScaleDowns, ServicePlay
from tests.kubernetes.entries import SERVICE, of_kind
from tests.waiting import wait_until

_SECONDS: Final = 2
"""In place of ten minutes, after which KEDA and the autoscaler take workers away."""
_WATCHED_SECONDS: Final = 12


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ClusterApi, PlayedKubelet, PlayedCloudWatch]]:
    controllers.built("keda")
    with clusters.cluster(tmp_path_factory.mktemp("keda")) as api, keda(api) as cloudwatch:
        service_plays.prepare(api)
        with PlayedKubelet(api, NAMESPACE) as kubelet:
            yield api, kubelet, cloudwatch


class ScaledPlay(ServicePlay):
    """A service of the stack with its ScaledObject, which reads a played CloudWatch."""

    def __init__(
        self,
        stage: tuple[ClusterApi, PlayedKubelet, PlayedCloudWatch],
        name: str,
        gpus: int = GPUS,
        **scaling: Any,
    ) -> None:
        api, kubelet, self._cloudwatch = stage
        capacity = {**SERVICE["capacity"], "max": gpus}
        service = {"name": name, "capacity": capacity, "scaling": {"min": 0, "floors": [], **scaling}}
        super().__init__(api, kubelet, name, gpus, service)
        objects = service_plays.service_objects(**service)
        self.scaled = of_kind(objects, "ScaledObject")
        spec = self.scaled["spec"]
        self.most: int = spec["maxReplicaCount"]
        spec |= {"pollingInterval": 1, "cooldownPeriod": _SECONDS}
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        behavior["scaleDown"]["stabilizationWindowSeconds"] = _SECONDS
        trigger = spec["triggers"][0]["metadata"]
        keys, values = (trigger[f"dimension{what}"].split(";") for what in ("Name", "Value"))
        self._metric = trigger["namespace"], trigger["metricName"], frozenset(zip(keys, values, strict=True))
        self.publish(0)
        self.apply()
        kinds = ("ServiceAccount", "Role", "RoleBinding", "TriggerAuthentication")
        for item in [one for one in objects if one["kind"] in kinds]:
            api.apply(item)
        api.apply(self.scaled)

    def publish(self, workers: int) -> None:
        """Set the metric."""
        self._cloudwatch.values[self._metric] = workers

    def needed(self, ready: int, in_flight: int, consumers: int) -> int:
        """Return the metric's value, up to the service's maximum."""
        return min(service_plays.workers_for(ready, in_flight, consumers), self.most)

    def remove(self) -> None:
        self.api.delete(self.api.path(self.scaled))
        self.delete()


def to_zero_and_back(play: ScaledPlay, rounds: int, seed: int) -> ScaleDowns:
    """Let requests come to a service without workers, end in any order, and leave none."""
    draw, result = random.Random(seed), ScaleDowns()
    play.await_workers(0)
    for _ in range(rounds):
        wanted = play.needed(draw.randint(1, GPUS * QUEUED_PER_WORKER), 0, 0)
        play.publish(wanted)
        play.await_workers(wanted)
        workers = [*play.workers.values()]
        draw.shuffle(workers)
        left = draw.randint(1, wanted)
        for number, worker in enumerate(workers):
            play.work(worker, draw.uniform(60, 1700) if number < left else 0)
        play.wait(service_plays.SETTLED_SECONDS)
        before = play.workers
        play.publish(play.needed(0, left, wanted))
        play.await_workers(left)
        result += play.ended(before)
        for worker in play.workers.values():
            play.work(worker, 0)
        play.publish(0)
        play.await_workers(0)
    play.remove()
    return result


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_a_service_follows_its_queue_from_zero_and_back_and_cuts_nothing_short(
    stage: Any, record_property: Any, rounds: int
) -> None:
    plays = [ScaledPlay(stage, f"zero-{rounds}-{number}") for number in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(to_zero_and_back, plays, [rounds // AT_ONCE] * AT_ONCE, range(AT_ONCE))
        total = sum(results, ScaleDowns())
    record_property(COUNTS_PROPERTY, f"to zero and back with KEDA: {total}")
    assert (total.events, total.in_work, total.cut_short) == (rounds, 0, 0)


@pytest.mark.parametrize("way", OUTAGES)
def test_workers_stay_while_the_metric_cannot_be_read(stage: Any, way: str) -> None:
    """Of several services, because KEDA's operator and the autoscaler read at times of their own."""
    cloudwatch: PlayedCloudWatch = stage[2]
    plays = [ScaledPlay(stage, f"{way.replace(' ', '-')}-{number}") for number in range(AT_ONCE)]
    for play in plays:
        play.publish(3)
    for play in plays:
        play.await_workers(3)
    with cloudwatch.outage(way):
        reads, end = cloudwatch.reads, time.monotonic() + _WATCHED_SECONDS
        while time.monotonic() < end or cloudwatch.reads < reads + AT_ONCE:  # KEDA awaits a late answer
            assert [len(play.pods()) for play in plays] == [3] * AT_ONCE
            time.sleep(0.3)
    for play in plays:
        play.publish(1)
    for play in plays:
        play.await_workers(1)
        play.remove()


def test_a_service_without_workers_starts_one_while_the_metric_cannot_be_read(stage: Any) -> None:
    play, cloudwatch = ScaledPlay(stage, "from-zero"), stage[2]
    play.await_workers(0)
    with cloudwatch.outage("no data"):
        play.await_workers(1)
    play.await_workers(0)
    play.remove()


def test_a_floor_holds_without_requests(stage: Any) -> None:
    wait_until(lambda: f"{datetime.now(UTC):%H:%M}" != "23:59")  # a floor's end, by cron
    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    play = ScaledPlay(stage, "floor", floors=[{"min": 2, "from": "00:00", "to": "24:00", "days": days}])
    play.await_workers(2)
    play.publish(5)
    play.await_workers(5)
    play.publish(0)
    play.await_workers(2)
    play.remove()


def test_a_worker_more_or_less_of_many_is_not_within_a_tolerance(stage: Any) -> None:
    """By default the autoscaler leaves a tenth as it is."""
    play = ScaledPlay(stage, "exact", 14)
    for workers in (10, 11, 10):
        play.publish(workers)
        play.await_workers(workers)
    play.remove()
