"""Texts and figure about a service whose real workers ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import counted, number, percent
from rehearsal.report.plotting import WIDE_LEFT, Figure, line, ms, time_layout
from rehearsal.results.run import Run
from rehearsal.results.serving import Served


def is_whole(service: Mapping[str, Any]) -> bool:
    """Return whether every request was answered and no repeat was unmarked."""
    return not service["lost"] and not service["unmarked_duplicates"]


def headline(service: Mapping[str, Any], cost: float) -> str:
    """Return the headline for the service part of ``summary.json``."""
    lost = counted(service["lost"], "request") + " lost" if service["lost"] else "all answered"
    return f"{counted(service['requests'], 'request')}, {lost}, for {percent(cost)} of the On-Demand price"


def rows(service: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each figure; ``service`` is the part of ``summary.json``."""
    lost = service["lost"]
    yield (
        "requests",
        number(service["requests"]),
        f"{number(service['answered'])} answered, {number(lost) if lost else 'none'} lost",
    )
    yield (
        "repeated",
        number(service["run_again"]),
        f"marked as repeat; unmarked: {service['unmarked_duplicates'] or 'none'}",
    )
    yield "redelivered", number(service["came_back"]), "from a terminated worker to another one"
    yield (
        "longest wait",
        f"{service['longest_wait_seconds']:.1f} s",
        f"{service['mean_wait_seconds']:.2f} s on average, in real time",
    )
    yield (
        "workers ended",
        number(service["drained"] + service["overdue"] + service["killed"]),
        f"{service['drained']} drained in time, {service['overdue']} overdue, "
        f"{service['killed']} killed without notice",
    )


def waiting(run: Run, served: Served) -> Figure:
    """Return the figure of waiting requests and ready workers, with two axes."""
    times = [ms(run, sample.tick) for sample in served.samples]
    max_waiting = max((sample.waiting for sample in served.samples), default=0)
    facts = (
        f"{counted(served.requests, 'request')}, {number(served.lost)} lost; "
        f"at most {number(max_waiting)} waited at once, the longest {served.longest_wait:.1f} s in real time."
    )
    layout = time_layout(run, 260, "requests waiting", left_margin=WIDE_LEFT)
    layout["margin"] |= {"r": 52}
    workers = max((sample.workers for sample in served.samples), default=0)
    layout["yaxis2"] = layout["yaxis"] | {
        "title": {"text": "workers", "standoff": 8},
        "tickmode": "linear",
        "dtick": max(1, workers // 4),
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
    }
    return Figure(
        "waiting",
        "Requests and workers",
        f"Unanswered requests and ready workers, both real, at the start of each minute. {facts}",
        f"Timeline of waiting requests and ready workers: {facts}",
        [
            line("Requests waiting", "--lost", times, [s.waiting for s in served.samples], "%{y:,} waiting"),
            line(
                "Workers ready",
                "--ready",
                times,
                [s.workers for s in served.samples],
                "%{y} workers",
                line={"shape": "hv"},
                yaxis="y2",
            ),
        ],
        layout,
        timeline=True,
    )


def simulated(served: Served) -> Iterable[tuple[str, str]]:
    """Return the page's terms and texts about what was real."""
    yield "Workers", f"real processes, run by the agent's supervisor: {' '.join(served.command)}"
    yield "Queue", "a RabbitMQ server on this machine, one node, and one client with a constant request rate"
    yield "Pace", f"{served.pace:g} simulated seconds per real second, at most"
    yield "GPUs", "none: the workers use this machine's CPUs"
