"""Texts and figure about services whose real workers ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import counted, number, percent
from rehearsal.report.plotting import WIDE_LEFT, Figure, line, ms, time_layout
from rehearsal.results.run import Run
from rehearsal.results.serving import API, OFFICE, ON_DEMAND, SPOT, Served

_COLOURS = ("--ready", "--spot", "--on-demand", "--announced")


def is_whole(service: Mapping[str, Any]) -> bool:
    """Return whether every request was answered with its text and no repeat was unmarked."""
    return not (service["lost"] or service["wrong"] or service["unmarked_duplicates"])


def headline(service: Mapping[str, Any]) -> str:
    """Return the headline for the service part of ``summary.json``: result, world, and what is not billed."""
    lost = counted(service["lost"], "request") + " lost" if service["lost"] else "all answered"
    wrong = f", {number(service['wrong'])} with a wrong text" if service["wrong"] else ""
    return (
        f"Rehearsed on one machine: {counted(service['requests'], 'request')}, {lost}{wrong}, "
        f"{share(service, API)} by the external API; "
        f"the AWS instances for {percent(service['cost_vs_on_demand'])} of the On-Demand price, "
        "not counting the API's calls"
    )


def lead(service: Mapping[str, Any], hours: float, group: str) -> str:
    """Return the sentence below the headline; ``group`` is the service of the timelines."""
    chain = " → ".join(group_["name"] for group_ in reversed(service["services"]))
    return (
        f"{number(hours)} h of a scripted Spot market took instances of both services of the chain {chain} "
        f"({counted(service['interruptions'], 'interruption')}), while a client sent images at a constant "
        f"rate. Timelines and decisions are those of {group}. {not_billed()}"
    )


def not_billed() -> str:
    """Return what the cost leaves out."""
    return "Not on the bill: the external API's calls, the office's machine, the broker, volumes and traffic."


def share(service: Mapping[str, Any], origin: str) -> str:
    """Return the share of the answered requests that an origin answered."""
    count = service["answered_by"][origin]
    answered = service["answered"]
    return percent(count / answered if answered else 0.0)


def rows(service: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each figure; ``service`` is the part of ``summary.json``."""
    lost, waits = service["lost"], service["wait_seconds"]
    yield (
        "requests",
        number(service["requests"]),
        f"{number(service['answered'])} answered, {number(lost) if lost else 'none'} lost, "
        f"{number(service['wrong']) if service['wrong'] else 'none'} with a wrong text",
    )
    yield (
        "answered by",
        share(service, SPOT),
        f"{SPOT}; {share(service, ON_DEMAND)} {ON_DEMAND}, {share(service, OFFICE)} {OFFICE}, "
        f"{share(service, API)} {API}",
    )
    yield (
        "external API",
        number(service["answered_by"][API]),
        f"answered; {number(service['failed_api_calls'])} failed and "
        f"{number(service['withheld_api_calls'])} withheld at the limit, both left to the queue",
    )
    yield (
        "waits",
        f"{waits['p50']:.2f} s",
        f"median; p95 {waits['p95']:.2f} s, p99 {waits['p99']:.2f} s, longest {waits['longest']:.1f} s, real",
    )
    yield (
        "repeated",
        number(service["run_again"]),
        f"marked as repeat; unmarked: {service['unmarked_duplicates'] or 'none'}",
    )
    yield "redelivered", number(service["came_back"]), "from a terminated worker to another one"
    yield (
        "workers ended",
        number(service["drained"] + service["overdue"] + service["killed"]),
        f"{service['drained']} drained in time, {service['overdue']} overdue, "
        f"{service['killed']} killed without notice",
    )
    for group in service["services"]:
        yield (
            f"cost of {group['name']}",
            percent(group["cost_vs_on_demand"]),
            f"of all On-Demand; {counted(group['interruptions'], 'interruption')}",
        )


def tiles(service: Mapping[str, Any]) -> list[tuple[str, str, str, float, str]]:
    """Return the tiles: (key, title, shown value, value, note)."""
    waits, cost = service["wait_seconds"], service["cost_vs_on_demand"]
    names = " and ".join(group["name"] for group in service["services"])
    interruptions = service["interruptions"]
    unannounced = sum(group["unannounced"] for group in service["services"])
    return [
        (
            "answered",
            "Requests answered",
            number(service["answered"]),
            service["answered"],
            f"of {number(service['requests'])}; {number(service['lost'])} lost, "
            f"{number(service['wrong'])} with a wrong text",
        ),
        (
            "p50",
            "Median wait",
            f"{waits['p50']:.2f} s",
            waits["p50"],
            f"p95 {waits['p95']:.2f} s, p99 {waits['p99']:.2f} s, longest {waits['longest']:.1f} s",
        ),
        (
            "api",
            "External API",
            share(service, API),
            service["answered_by"][API] / max(service["answered"], 1),
            f"{number(service['answered_by'][API])} requests; {number(service['failed_api_calls'])} calls "
            f"failed, {number(service['withheld_api_calls'])} withheld",
        ),
        (
            "cost_of_services",
            "Cost vs On-Demand",
            percent(cost),
            cost,
            f"of {names}, AWS instances only",
        ),
        (
            "interruptions_of_services",
            "Interruptions",
            number(interruptions),
            interruptions,
            f"{number(interruptions - unannounced)} announced, {number(unannounced)} without notice",
        ),
    ]


def waiting(run: Run, served: Served) -> Figure:
    """Return the figure of waiting requests and ready workers, with two axes."""
    times = [ms(run, sample.tick) for sample in served.samples]
    max_waiting = max((sample.waiting for sample in served.samples), default=0)
    facts = (
        f"{counted(served.requests, 'request')}, {number(served.lost)} lost; at most {number(max_waiting)} "
        f"waited at once, the longest {served.waits.longest:.1f} s in real time."
    )
    layout = time_layout(run, 260, "requests waiting", left_margin=WIDE_LEFT)
    layout["margin"] |= {"r": 52}
    names = [group.name for group in served.groups]
    workers = max((max(sample.workers.values(), default=0) for sample in served.samples), default=0)
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
            *(
                line(
                    f"Workers of {name}",
                    colour,
                    times,
                    [s.workers.get(name, 0) for s in served.samples],
                    f"%{{y}} workers of {name}",
                    line={"shape": "hv"},
                    yaxis="y2",
                )
                for name, colour in zip(names, _COLOURS, strict=False)
            ),
        ],
        layout,
        timeline=True,
    )


def simulated(served: Served) -> Iterable[tuple[str, str]]:
    """Return the page's terms and texts about what was real."""
    for group in served.groups:
        text = f"real processes, run by the agent's supervisor: {' '.join(group.command)}"
        yield f"Workers of {group.name}", text
    yield "Model", "a numpy model with the Keras model's weights; it sleeps for the assumed time of a batch"
    yield "Queues", "a RabbitMQ server on this machine, one node, and one client with a constant request rate"
    yield "External API", "a local HTTP server that fails every tenth call"
    yield "Office", "a process of this machine, switched off for a while"
    yield "Pace", f"{served.pace:g} simulated seconds per real second, at most; waits are in real seconds"
    yield "GPUs", "none: the workers use this machine's CPUs"
    yield "Bill", not_billed()
