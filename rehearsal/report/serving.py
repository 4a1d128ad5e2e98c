"""What a service's own workers did, in words and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import counted, number, percent
from rehearsal.report.plotting import WIDE_LEFT, Figure, line, ms, time_layout
from rehearsal.results.run import Run
from rehearsal.results.serving import Served


def is_whole(service: Mapping[str, Any]) -> bool:
    """Tell whether every request got its answer, and none was run twice unmarked."""
    return not service["lost"] and not service["unmarked_duplicates"]


def headline(service: Mapping[str, Any], cost: float) -> str:
    """Return what the service's part of ``summary.json`` comes to, in one line."""
    lost = counted(service["lost"], "request") + " lost" if service["lost"] else "all answered"
    return f"{counted(service['requests'], 'request')}, {lost}, for {percent(cost)} of the on-demand price"


def rows(service: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each figure; ``service`` is the part of ``summary.json``."""
    lost = service["lost"]
    yield (
        "requests",
        number(service["requests"]),
        f"{number(service['answered'])} answered, {number(lost) if lost else 'none'} lost",
    )
    yield (
        "run twice",
        number(service["run_again"]),
        f"marked as such; unmarked: {service['unmarked_duplicates'] or 'none'}",
    )
    yield "came back", number(service["came_back"]), "from workers that went, and were run by others"
    yield (
        "longest wait",
        f"{service['longest_wait_seconds']:.1f} s",
        f"{service['mean_wait_seconds']:.2f} s in the mean, of real time",
    )
    yield (
        "workers gone",
        number(service["drained"] + service["overdue"] + service["killed"]),
        f"{service['drained']} drained in time, {service['overdue']} overdue, "
        f"{service['killed']} killed without notice",
    )


def waiting(run: Run, served: Served) -> Figure:
    """Draw the requests that wait, and the workers that are ready, on an axis each."""
    times = [ms(run, sample.tick) for sample in served.samples]
    max_waiting = max((sample.waiting for sample in served.samples), default=0)
    facts = (
        f"{counted(served.requests, 'request')}, {number(served.lost)} lost; "
        f"at most {number(max_waiting)} waited at once, the longest for {served.longest_wait:.1f} s of real time."
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
        "Requests without an answer and workers that are ready, both real, at the beginning of each minute. "
        f"{facts}",
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
    """Return what was real, as the page says it: terms and texts."""
    yield "Workers", f"really run, by the agent's supervisor: {' '.join(served.command)}"
    yield "Queue", "a RabbitMQ server of this machine, one node, and one client that asks at a steady rate"
    yield "Pace", f"{served.pace:g} s of the market in a real second, at most"
    yield "GPUs", "none: the workers compute on this machine's CPUs"
