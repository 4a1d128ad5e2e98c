"""A load in words: for the terminal, the tiles of the page, and ``summary.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import number, percent
from market.load.account import LoadAccount


def headline(load: Mapping[str, Any]) -> str:
    """Return what the load's part of ``summary.json`` comes to, in one line."""
    return (
        f"{number(load['requests'])} requests, 99 of 100 taken within {load['p99_wait_seconds']:.0f} s "
        f"({load['wait_seconds']:g} s asked), for {percent(load['bill_vs_peak'])} of on-demand "
        "sized for the peak"
    )


def is_within_limit(load: Mapping[str, Any]) -> bool:
    """Tell whether no more requests waited too long than may."""
    return bool(load["p99_wait_seconds"] <= load["wait_seconds"])


def rows(load: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each figure; ``load`` is the part of ``summary.json``."""
    yield "requests", number(load["requests"]), f"at most {load['peak_rate']:.2f} a second, in a minute"
    yield (
        "wait",
        f"{load['p99_wait_seconds']:.0f} s",
        f"99 of 100 ({load['wait_seconds']:g} s asked); half of them {load['p50_wait_seconds']:.0f} s, "
        f"the longest {load['longest_wait_seconds']:.0f} s",
    )
    yield (
        "workers ready",
        f"{load['mean_ready']:.1f}",
        f"in the mean; {load['least_ready']} to {load['most_ready']}",
    )
    peak = load["peak"]
    yield (
        "bill",
        f"${load['bill']:.2f}",
        f"instances; {percent(load['bill_vs_peak'])} of ${load['on_demand_for_peak']:.2f} for "
        f"{peak['count']} × {peak['instance_type']} on-demand all the time",
    )


def tiles(load: Mapping[str, Any]) -> list[tuple[str, str, str, float, str]]:
    """Return (key of the load's figure, title, value as shown, value, note) of what is to be seen first."""
    peak = load["peak"]
    return [
        (
            "p99_wait_seconds",
            "99 of 100 waited at most",
            f"{load['p99_wait_seconds']:.0f} s",
            load["p99_wait_seconds"],
            f"{load['wait_seconds']:g} s asked; half waited {load['p50_wait_seconds']:.0f} s",
        ),
        (
            "bill_vs_peak",
            "Bill vs on-demand for the peak",
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
            f"in the mean; {load['least_ready']} to {load['most_ready']}",
        ),
    ]


def simulated(load: LoadAccount) -> Iterable[tuple[str, str]]:
    """Return what stood in for requests and workers, as the page says it: terms and texts."""
    rates = ", ".join(f"{kind} {speed:.2f}" for kind, speed in load.speeds.items())
    yield "Load", "made by a generator: a daily curve, a sudden half hour at 6:00, bursts by chance"
    yield "Workers", f"simulated; requests a second that one ends, assumed: {rates}"
    yield "Queue", "simulated by the second; its row is written as the queue watcher writes it"
    yield "Scaler", "the deployed function, once a minute; it alone sets the target"
    yield "On-demand for the peak", "the busiest five minutes, no reserve, the type that is cheapest for it"
