"""How a job stands, from what was observed of it: one of ten words, and why in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from contracts.registry.item import Worker
from gpu_spot.jobs.observed import JobHost, JobObserved

Phase: TypeAlias = Literal[
    "pending",  # nothing of it has run yet: no host, or one that boots
    "preparing",  # its dataset or its first volume is being made
    "running",
    "interrupted",  # its host is announced to go, or silent
    "moving",  # the next host boots, or brings the volume
    "waiting for a host",  # it has run, and has none now
    "stopped",  # by people, or its budget is spent; its volume stays
    "done",
    "failed",
]

PAUSED: Final = ("paused", "dry-run", "manual")
"""Modes in which the controller starts and ends nobody for a job by itself."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job's state, why, and the instance that it is about, if any; ``since`` is when its host began."""

    phase: Phase
    why: str
    host: JobHost | None = None
    since: float | None = None


def standing(seen: JobObserved) -> Standing:
    """Say how a job stands."""
    found = _standing(seen)
    if not seen.experiments or found.phase == "stopped":
        return found
    return replace(found, why="; ".join(filter(None, (seen.experiments_in_words, found.why))))


def _standing(seen: JobObserved) -> Standing:
    at_work = [one for one in _fresh(seen) if one.state != "waiting"]
    if seen.verdict == "done":
        return Standing("done", "", since=seen.row.changed or None)
    if seen.verdict == "failed":
        return Standing("failed", seen.row.reason, since=seen.row.changed or None)
    if seen.is_stopped:
        if at_work:
            return Standing("stopped", f"{at_work[0].instance} saves and gives it back", _host(seen, at_work))
        return Standing("stopped", "its volume stays; `gpu-spot jobs resume` lets it go on")
    if seen.is_held:
        why = f"its budget of ${seen.budget:,.2f} is spent; `gpu-spot jobs resume --budget` lets it go on"
        if at_work:
            return Standing("stopped", f"{at_work[0].instance} saves: {why}", _host(seen, at_work))
        return Standing("stopped", why)
    if not seen.target:
        return Standing("stopped", "its target is 0")
    if seen.waits_for:
        return Standing("preparing", f"{seen.prepared_by} prepares {seen.waits_for}")
    if at_work:
        return _at_work(seen, at_work)
    return _between_hosts(seen)


def _at_work(seen: JobObserved, workers: list[Worker]) -> Standing:
    # While it is handed over two may be heard: who holds the lease is meant.
    worker = next((one for one in workers if one.instance == seen.row.holder), workers[0])
    host = _host(seen, [worker])
    if worker.deadline is None:
        return Standing("running", "", host, worker.since)
    left = max(0.0, worker.deadline - seen.now)
    return Standing("interrupted", f"{worker.instance} goes in {left:.0f} s", host, worker.since)


def _between_hosts(seen: JobObserved) -> Standing:
    has_run = any(one.starts for one in seen.own_stints) or (
        seen.row.revision == seen.run and seen.row.state == "running"
    )
    if seen.group and not seen.workers:
        phase_now: Phase = "waiting for a host" if has_run else "pending"
        return Standing(phase_now, f"waits for its turn in {seen.group}")
    coming = [one for one in _fresh(seen) if one.deadline is None]
    bringing = [one for one in coming if one.instance == seen.row.holder and seen.row.lease_until > seen.now]
    if bringing:
        why = f"{bringing[0].instance} brings its volume"
        return Standing("moving" if has_run else "preparing", why, _host(seen, bringing), bringing[0].since)
    left = {one.instance for one in seen.own_stints if one.ended}
    silent = {one.instance: one for one in seen.own_stints if not one.ended}
    live = [one for one in seen.hosts if one.is_live]
    if not coming and (lost := next((one for one in live if one.instance in silent), None)):
        seconds = seen.now - silent[lost.instance].seen
        return Standing("interrupted", f"no sign of life from {lost.instance} for {seconds:.0f} s", lost)
    phase: Phase = "moving" if has_run else "pending"
    if coming:
        holder = seen.row.holder if seen.row.lease_until > seen.now else ""
        why = f"{coming[0].instance} waits for " + (f"{holder} to give it back" if holder else "the lease")
        return Standing(phase, why, _host(seen, coming), coming[0].since)
    taken = {one.instance for one in _fresh(seen)} | left
    if booting := [one for one in live if one.instance not in taken]:
        newest = max(booting, key=lambda one: one.launched)
        return Standing(phase, f"{newest.instance} boots", newest, newest.launched)
    why = f"the controller is {seen.mode}" if seen.mode in PAUSED else "spot and on-demand are asked for one"
    return Standing("waiting for a host" if has_run else "pending", why)


def _fresh(seen: JobObserved) -> list[Worker]:
    """Return who was heard lately, as the controller counts it."""
    return [one for one in seen.workers if one.is_fresh(seen.now)]


def _host(seen: JobObserved, workers: list[Worker]) -> JobHost | None:
    return next((one for one in seen.hosts if one.instance == workers[0].instance), None)
