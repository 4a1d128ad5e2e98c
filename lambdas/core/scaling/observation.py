"""From hosts and their workers' pulses to what the scaler decides by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from contracts import names
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog
from contracts.registry.worker_report import Pulse
from lambdas.core.health.model import WorkerHost
from lambdas.core.scaling.model import LOOK_SECONDS, LoadObservation, WorkDone
from lambdas.core.scaling.throughput import Throughput

SURE_SECONDS: Final = 300.0
"""Where a request has waited for so long, workers had work all the time over which their rate is measured."""
_TOLD_SECONDS: Final = 180.0
"""A worker tells every few seconds what it has done; what is older says nothing of now."""
_LEAST_USE: Final = 5.0
"""Percent: NVML tells whole ones of short samples."""


def observe(
    now: float,
    target: int,
    queue: Backlog | None,
    hosts: Iterable[WorkerHost],
    types: Mapping[str, str],
    boot_seconds: float,
    throughput: Throughput,
    on_demand: int = 0,
) -> LoadObservation:
    """Return a service as the scaler sees it; ``types`` are instance types by host.

    ``on_demand`` is how many of ``target`` workers the group's own mix buys on-demand.

    Workers on premises count like others, as a type of their own: the controller holds that much less on AWS.
    """
    known = tuple(hosts)
    ready: dict[str, list[Worker]] = {}
    booting = 0
    for host in known:
        serving = [w for w in host.workers if w.is_fresh(now) and w.state == "ready" and w.deadline is None]
        if host.spared:
            continue
        ready.setdefault(_type(host, types), []).extend(serving)
        if host.launched_at is not None and now - host.launched_at < 2 * boot_seconds:
            booting += max(0, host.expected - len(serving))
    return LoadObservation(
        now,
        target,
        queue,
        {name: len(workers) for name, workers in ready.items() if workers},
        booting,
        dict(_served(now, queue, ready, throughput)),
        boot_seconds,
        scarce=_stand_in(known, on_demand),
    )


def _stand_in(hosts: Iterable[WorkerHost], on_demand: int) -> bool:
    """Say whether an on-demand instance could go and those that the mix asks for were still there."""
    bought = [h.expected for h in hosts if not (h.on_premises or h.spot or h.spared)]
    return sum(bought) - max(bought, default=0) >= on_demand if bought else False


def _type(host: WorkerHost, types: Mapping[str, str]) -> str:
    return names.ORIGIN_ON_PREMISES if host.on_premises else types.get(host.id, "")


def _served(
    now: float, queue: Backlog | None, ready: Mapping[str, list[Worker]], throughput: Throughput
) -> Iterator[tuple[str, WorkDone]]:
    """Yield what each type did in the last minute.

    Where a request has waited for long enough all workers had work, so that their rate is what they can do.
    Else those count that say for how long they had any.
    """
    waited = queue.oldest if queue is not None and queue.ready > 0 and queue.is_fresh(now) else 0.0
    for name, workers in ready.items():
        pulses = [w.pulse for w in workers if w.pulse is not None and abs(now - w.pulse.at) < _TOLD_SECONDS]
        telling = [(pulse.rate, pulse.busy) for pulse in pulses if pulse.busy is not None]
        if telling and waited < SURE_SECONDS:
            served = _work(telling)
        else:
            served = _supposed(pulses, waited, throughput.of(name))
        if served.requests > 0 and served.seconds > 0:
            yield name, served


def _supposed(pulses: Sequence[Pulse], waited: float, each: float | None) -> WorkDone:
    """Return what workers did that tell how many requests they end, and not how long they had any.

    They can do what was measured before, ``each``, or more; where nothing was, the share of time in which
    their GPUs were busy is a first guess.
    """
    if each is None and waited < LOOK_SECONDS:
        shares = ((p.rate, p.gpu_use) for p in pulses if p.gpu_use is not None and p.gpu_use >= _LEAST_USE)
        return _work([(rate, percent / 100) for rate, percent in shares])
    served = _work([(pulse.rate, 1.0) for pulse in pulses])
    if each is not None and waited < SURE_SECONDS:
        return WorkDone(served.requests, min(served.seconds, served.requests / each))
    return served


def _work(pairs: Iterable[tuple[float, float]]) -> WorkDone:
    """Return a minute of workers by rate and the share of it in which they worked."""
    told = tuple(pairs)
    return WorkDone(LOOK_SECONDS * sum(r for r, _ in told), LOOK_SECONDS * sum(share for _, share in told))
