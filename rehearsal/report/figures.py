"""The figures of the page: capacity, ready workers, one interruption in seconds."""

from __future__ import annotations

from gpu_spot.text import counted, duration
from market.rules import TICK_SECONDS
from rehearsal.report import series
from rehearsal.report.plotting import LOST, Figure, line, markers, ms, over_time, stacked, target
from rehearsal.results.run import Run

_AROUND = 2, 4
"""Minutes shown before the notice, and after Spot is back."""


def figures(run: Run) -> tuple[Figure, ...]:
    """Return all figures of a run in page order."""
    shown = series.typical_interruption(run) if run.migrations is None else None
    return (capacity(run), ready(run), *([] if shown is None else [interruption(run, shown)]))


def capacity(run: Run) -> Figure:
    """Return the figure of paid instances, Spot and On-Demand, with each interruption, against the target."""
    shown, losses = series.steps(run), series.losses(run)
    times = [ms(run, step.tick) for step in shown]
    peak = max(step.on_demand for step in shown)
    bridged = (
        " On-Demand instances run while Spot is unavailable or booting, and terminate as soon as a Spot "
        "worker that replaces them is ready."
        if run.migrations is None
        else ""
    )

    def marked(kind: str, colour: str) -> dict[str, object]:
        of_kind = [loss for loss in losses if loss.kind == kind]
        return markers(
            f"Interrupted, {'without notice' if kind == 'unannounced' else kind}",
            colour,
            "circle" if kind == "announced" else "cross",
            [ms(run, loss.tick) for loss in of_kind],
            [run.target] * len(of_kind),
            [
                f"{counted(loss.count, 'instance')} of {run.pools[loss.where]} interrupted, {kind}"
                for loss in of_kind
            ],
        )

    return Figure(
        "capacity",
        "Capacity against target",
        f"Instances that are billed over time.{bridged} The markers are interrupted instances "
        f"({series.by_pool(run)}).",
        f"Stacked timeline of Spot and On-Demand instances over {duration(run.ticks)}, against a target of "
        f"{run.target}; at most {peak:g} On-Demand at once; "
        f"{counted(sum(loss.count for loss in losses), 'instance')} interrupted.",
        [
            *stacked(
                times,
                ("On-Demand", "--on-demand", [step.on_demand for step in shown]),
                ("Spot", "--spot", [step.spot for step in shown]),
            ),
            target(times, [step.target for step in shown]),
            *(marked(kind, colour) for kind, colour in LOST.items()),
        ],
        **over_time(run, "billed instances"),
        height=300,
    )


def ready(run: Run) -> Figure:
    """Return the figure of ready workers against the target, with a marker for every shortage."""
    shown, shortages = series.steps(run), series.shortages(run)
    times = [ms(run, step.tick) for step in shown]
    lost = sum(shortage.lost for shortage in shortages)
    longest = max((shortage.ticks for shortage in shortages), default=0)
    summed = (
        f"{counted(len(shortages), 'shortage')} after the warm-up, the longest {duration(longest)}, "
        f"in total {counted(lost, 'worker-minute')} of {run.target * run.ledger.counted:,}. "
        f"No worker was ready for {duration(run.ledger.minutes_none_ready)}."
        if shortages
        else "No shortage after the warm-up."
    )
    return Figure(
        "ready",
        "Ready workers against target",
        "Workers that send heartbeats and are not draining. Every time with fewer workers than the "
        f"target is marked, even if short. {summed}",
        f"Timeline of ready workers against a target of {run.target}. {summed}",
        [
            line("Ready", "--ready", times, [step.ready for step in shown], fill="--ready-fill"),
            markers(
                f"Shortage ({len(shortages):,})",
                "--lost",
                "diamond",
                [ms(run, shortage.tick) for shortage in shortages],
                [shortage.lowest for shortage in shortages],
                [
                    f"{shortage.lowest} of {run.target} ready for {duration(shortage.ticks)}"
                    + (f"; {shortage.cause}" if shortage.cause else "")
                    for shortage in shortages
                ],
            )
            | {"stems": run.target},
            target(times, [step.target for step in shown]),
        ],
        **over_time(run, "ready workers"),
        height=260,
    )


def interruption(run: Run, shown: series.Interruption) -> Figure:
    """Return one interruption in seconds since its notice: On-Demand ready, instance gone, Spot back."""
    first = max(0, shown.notice - _AROUND[0])
    last = min(run.ticks, shown.spot_ready + _AROUND[1])

    def seconds(tick: int) -> float:
        return (tick - shown.notice) * TICK_SECONDS

    steps = [step for step in series.steps(run) if step.tick + step.ticks > first and step.tick <= last]
    # The last value holds to the figure's end, the first one from its beginning.
    times = [seconds(max(first, step.tick)) for step in steps] + [seconds(last)]
    steps = [*steps, steps[-1]]
    moments = sorted(
        (
            (0.0, "notice"),
            (seconds(shown.on_demand_ready), "On-Demand ready"),
            (seconds(shown.ended), f"{shown.count} interrupted"),
            (seconds(shown.spot_ready), "Spot back"),
        )
    )
    sequence = "; ".join(f"after {at:.0f} s {text}" for at, text in moments[1:])
    return Figure(
        "interruption",
        "One interruption in seconds",
        f"The interruption of {counted(shown.count, 'instance')} on {shown.pool} with the median time until "
        f"Spot is back, of {counted(shown.of, 'interruption')} with a notice that nothing else disturbed. "
        f"Since the notice: {sequence}. The replay's clock moves in steps of {TICK_SECONDS:g} s.",
        f"Ready workers and billed instances from {-seconds(first):.0f} s before the notice. {sequence}.",
        [
            *stacked(
                times,
                ("On-Demand, billed", "--on-demand", [step.on_demand for step in steps]),
                ("Spot, billed", "--spot", [step.spot for step in steps]),
            ),
            line("Ready", "--ready", times, [step.ready for step in steps], width=3),
            target(times, [step.target for step in steps]),
            {"kind": "moments", "x": [at for at, _ in moments], "text": [text for _, text in moments]},
        ],
        axis="seconds",
        titles=("seconds since the notice", "instances, workers"),
        range=(seconds(first), seconds(last)),
        height=300,
    )
