"""Plays of a run on several nodes that go on without each other: an Indexed Job of lives (docs/adr/0087)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from infra.kubernetes.context import Manifest
from tests.cluster.plays import SAVES, JobState, Stage

NODES: Final = {"min": 2, "max": 4}


@dataclass(frozen=True)
class Survivors:
    """What came of a play."""

    waits: list[float]
    indexes: list[int]
    state: JobState
    survivor: bool
    at_once: int


def index_of(pod: Manifest) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def survivors(stage: Stage, name: str) -> Survivors:
    """Take nodes by notices, one without, and end a command by a fault; then one pod ends well."""
    play = stage.of_job(name, nodes=NODES, maxRestarts=1)
    play.start(SAVES)
    pods = sorted((play.next_pod() for _ in range(NODES["max"])), key=index_of)
    indexes, waits, untouched = [index_of(pod) for pod in pods], list[float](), pods[3]

    def successor() -> Manifest:
        pod = play.next_pod()
        indexes.append(index_of(pod))
        return pod

    taken = pods[0]
    for _ in range(4):  # the Job controller's own wait would be 10, 20, 40 and 80 s
        play.drain(taken)
        play.wait_for_end(taken)
        ended = time.monotonic()
        taken = successor()
        waits.append(time.monotonic() - ended)
    play.lose_node(pods[1])
    successor()
    play.end(pods[2], 1)
    successor()
    uids = {pod["metadata"]["uid"] for pod in play.pods() if pod["status"]["phase"] == "Running"}
    play.end(untouched, 0)
    state = play.wait_until_complete()
    play.remove()
    is_there = untouched["metadata"]["uid"] in uids
    return Survivors(waits, indexes, state, is_there, play.at_once())
