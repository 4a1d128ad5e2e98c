"""Texts about a load: terminal rows, tiles and terms of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import number, percent
from market.load.account import LoadAccount


def headline(load: Mapping[str, Any]) -> str:
    """Return the headline for the load part of ``summary.json``."""
    return (
        f"{number(load['requests'])} requests, 99 % started within {load['p99_wait_seconds']:.0f} s "
        f"(limit {load['wait_seconds']:g} s), for {percent(load['bill_vs_peak'])} of the On-Demand price "
        "for the peak"
    )


def is_within_limit(load: Mapping[str, Any]) -> bool:
    """Return whether the 99th percentile of the waits is within the limit."""
    return bool(load["p99_wait_seconds"] <= load["wait_seconds"])


def rows(load: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each figure; ``load`` is the part of ``summary.json``."""
    yield "requests", number(load["requests"]), f"at most {load['peak_rate']:.2f} per second (minute average)"
    yield (
        "wait",
        f"{load['p99_wait_seconds']:.0f} s",
        f"99th percentile (limit {load['wait_seconds']:g} s); median {load['p50_wait_seconds']:.0f} s, "
        f"longest {load['longest_wait_seconds']:.0f} s",
    )
    yield (
        "workers ready",
        f"{load['mean_ready']:.1f}",
        f"on average; {load['least_ready']} to {load['most_ready']}",
    )
    peak = load["peak"]
    yield (
        "bill",
        f"${load['bill']:.2f}",
        f"instances; {percent(load['bill_vs_peak'])} of ${load['on_demand_for_peak']:.2f} for "
        f"{peak['count']} × {peak['instance_type']} On-Demand all the time",
    )


def tiles(load: Mapping[str, Any]) -> list[tuple[str, str, str, float, str]]:
    """Return the tiles: (key, title, shown value, value, note)."""
    peak = load["peak"]
    return [
        (
            "p99_wait_seconds",
            "99th percentile wait",
            f"{load['p99_wait_seconds']:.0f} s",
            load["p99_wait_seconds"],
            f"limit {load['wait_seconds']:g} s; median {load['p50_wait_seconds']:.0f} s",
        ),
        (
            "bill_vs_peak",
            "Cost vs On-Demand for the peak",
            percent(load["bill_vs_peak"]),
            load["bill_vs_peak"],
            f"${load['bill']:.2f} instead of ${load['on_demand_for_peak']:.2f} "
            f"({peak['count']} × {peak['instance_type']})",
        ),
        (
            "mean_ready",
            "Workers ready",
            f"{load['mean_ready']:.1f}",
            load["mean_ready"],
            f"on average; {load['least_ready']} to {load['most_ready']}",
        ),
    ]


def simulated(load: LoadAccount) -> Iterable[tuple[str, str]]:
    """Return the page's terms and texts about what was simulated."""
    rates = ", ".join(f"{kind} {speed:.2f}" for kind, speed in load.speeds.items())
    yield "Load", "generated: a daily curve, a burst of half an hour at 6:00, random bursts"
    yield "Workers", f"simulated; assumed requests per second of a worker: {rates}"
    yield "Queue", "simulated by the second; its registry item is written as by the queue watcher"
    yield "Scaler", "the deployed function, once a minute; only it sets the target"
    yield "On-Demand for the peak", "the busiest five minutes, without reserve, on the cheapest type"
