"""Forecast cost and shortage of the next week at every half day of the traces, and compare with the replay.

    GPU_SPOT_TRACES=… python -m research.market.forecast [--out FILE] [--docs .] [--scenarios N]

A window is at least a week of a market before a moment, and the week after it, which the forecast does not
see. The spreads of the range are fitted to the other markets only, and the error is also measured with the
rule for the level of costs chosen on the other markets. The traces are forecast, and markets of the fitted
model; without the traces the latter only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import inf, log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, TypeAlias

from gpu_spot.forecast.ranges import WEEK, CostLevel, Part, Spreads, after, cost_level
from gpu_spot.forecast.replayed import Question, forecast_slot, parts
from research.parts.page import replace_part, table
from research.parts.run import parser_of, write
from research.parts.scenarios import Scenario, chosen, modelled

_FREE: Final = Spreads(0.0, 0.0)
_DAYS: Final = 45
LEVELS: Final = tuple(
    CostLevel(memory, recent)
    for memory, recent in product(
        (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 7.0, 14.0), (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    )
)
"""Rules among which one is chosen on the other markets."""
MODEL_SEEDS: Final = range(17, 33)
"""Markets of the model that were not used to choose the rules; those before were."""


@dataclass(frozen=True)
class Window:
    """A forecast and its outcome: ``cost`` a fraction of On-Demand, ``shortage`` minutes a slot and week."""

    market: str
    before: tuple[Part, ...]
    cost: float
    shortage: float
    hindsight: float = 0.0
    """The mean cost of all of the market, the week itself included."""

    @property
    def last(self) -> float:
        """The cost of the week before."""
        return came(self.before[-WEEK:])[0]


def market_of(scenario: Scenario) -> str:
    """Return the key of traces with common weather: one region, one start, any type."""
    zone, _, kind = scenario.traces[0].name.partition("_")
    if not kind:
        return scenario.name  # drawn from the model independently
    return f"{zone[:-1]}, {scenario.traces[0].seconds:.0f} s"


def windows(market: str, played: Sequence[Part]) -> Iterator[Window]:
    """Yield the windows of one replayed market."""
    for now in range(WEEK, len(played) - WEEK + 1):
        cost, shortage = came(played[now : now + WEEK])
        yield Window(market, tuple(played[:now]), cost, shortage, fmean(part.cost for part in played))


def came(week: Sequence[Part]) -> tuple[float, float]:
    """Return the result of a week."""
    return fmean(part.cost for part in week), sum(part.shortage for part in week)


def fit(windows_seen: Sequence[Window]) -> Spreads:
    """Return the spreads that contain four windows in five."""
    outlooks = [after(window.before, _FREE) for window in windows_seen]
    cost = [abs(log(w.cost / o.cost.middle)) for w, o in zip(windows_seen, outlooks, strict=True)]
    root = [
        abs(sqrt(w.shortage) - sqrt(o.shortage.middle)) for w, o in zip(windows_seen, outlooks, strict=True)
    ]
    return Spreads(_percentile(cost), _percentile(root))


def held_out(windows_seen: Sequence[Window], other_windows: Sequence[Window]) -> list[float]:
    """Return the errors of the cost with the level chosen for each market on the other markets.

    ``other_windows`` are windows of another world, which weigh as much as the other markets of this one.
    """
    errors = {
        level: [
            abs(cost_level(window.before, level) - window.cost) for window in (*windows_seen, *other_windows)
        ]
        for level in LEVELS
    }
    last = [abs(window.last - window.cost) for window in (*windows_seen, *other_windows)]
    count, result = len(windows_seen), [0.0] * len(windows_seen)
    for market in {window.market for window in windows_seen}:
        own_indices = [index for index in range(count) if windows_seen[index].market == market]
        rest = [index for index in range(count) if windows_seen[index].market != market]
        samples = [sample for sample in (rest, list(range(count, len(last)))) if sample] or [own_indices]

        def score(level: CostLevel, samples: Sequence[Sequence[int]] = samples) -> float:
            return sum(
                _ratio(
                    median(errors[level][index] for index in sample), median(last[index] for index in sample)
                )
                for sample in samples
            )

        best = min(LEVELS, key=score)
        for index in own_indices:
            result[index] = errors[best][index]
    return result


Deviation: TypeAlias = tuple[float, float, float]
"""How far a week is from the forecast without a history: as in `Spreads`."""
FITTED_SHARE: Final = 0.85
"""Weeks in the fitted range, so that four in five of a market that was left out are; markets are few."""


def deviations(scenario: Scenario) -> list[Deviation]:
    """Return the deviations of a market's weeks, one a day, from the forecast across drawn markets."""
    middle = forecast_slot(_question(scenario))
    played = play(scenario)
    result = []
    for begin in range(0, len(played) - WEEK + 1, 2):
        week = played[begin : begin + WEEK]
        cost, shortage = came(week)
        losses = sum(part.losses for part in week) / 7
        result.append(
            (
                abs(log(cost / middle.cost.middle)),
                abs(sqrt(shortage) - sqrt(middle.shortage.middle)),
                abs(sqrt(losses) - sqrt(middle.losses.middle)),
            )
        )
    return result


def fit_across(weeks: Sequence[Deviation]) -> Spreads:
    """Return the spreads that contain ``FITTED_SHARE`` of the weeks."""
    return Spreads(*(_percentile(values, FITTED_SHARE) for values in zip(*weeks, strict=True)))


def unknown_markets(scenarios: Sequence[Scenario]) -> tuple[Spreads, dict[str, Any]]:
    """Return the spreads of all weeks, and the coverage of each market's weeks by the others' spreads."""
    weeks: dict[str, list[Deviation]] = {}
    replayed_traces = set[tuple[object, ...]]()
    for scenario in scenarios:
        if scenario.traces in replayed_traces:  # the same traces with another target
            continue
        replayed_traces.add(scenario.traces)
        weeks.setdefault(market_of(scenario), []).extend(deviations(scenario))
    weeks = {market: days for market, days in weeks.items() if days}
    inside = [0, 0, 0]
    for market, own_weeks in weeks.items():
        other_weeks = [week for name, days in weeks.items() if name != market for week in days]
        spreads = fit_across(other_weeks or own_weeks)
        limits = (spreads.cost, spreads.shortage, spreads.losses)
        for week in own_weeks:
            inside = [
                count + (away <= limit) for count, away, limit in zip(inside, week, limits, strict=True)
            ]
    every = [week for days in weeks.values() for week in days]
    shares = [count / len(every) for count in inside]
    names = ("cost", "shortage", "interruptions")
    return fit_across(every), {
        "weeks": len(every),
        "markets": len(weeks),
        **dict(zip(names, shares, strict=True)),
    }


def _percentile(values: Sequence[float], share: float = 0.8) -> float:
    return sorted(values)[int(share * len(values))]


def judged(windows_seen: Sequence[Window]) -> dict[str, Any]:
    """Return the coverage of the ranges with the other markets' spreads, and errors ÷ "like last week"."""
    held_cost = held_shortage = 0
    ours: list[float] = []
    last: list[float] = []
    missed: list[float] = []
    missed_last: list[float] = []
    for market in sorted({seen_window.market for seen_window in windows_seen}):
        own_windows = [seen_window for seen_window in windows_seen if seen_window.market == market]
        spreads = fit(
            [seen_window for seen_window in windows_seen if seen_window.market != market] or own_windows
        )
        for window in own_windows:
            forecast = after(window.before, spreads)
            held_cost += forecast.cost.low <= window.cost <= forecast.cost.high
            held_shortage += forecast.shortage.low <= window.shortage <= forecast.shortage.high
            cost, shortage = came(window.before[-WEEK:])
            ours.append(abs(forecast.cost.middle - window.cost))
            last.append(abs(cost - window.cost))
            missed.append(abs(forecast.shortage.middle - window.shortage))
            missed_last.append(abs(shortage - window.shortage))
    return {
        "windows": len(windows_seen),
        "cost_coverage": held_cost / len(windows_seen),
        "shortage_coverage": held_shortage / len(windows_seen),
        "error_ratio": _ratio(median(ours), median(last)),
        "mean_error_ratio": _ratio(fmean(ours), fmean(last)),
        **_compared(windows_seen, ()),
        "shortage_error_ratio": _ratio(median(missed), median(missed_last)),
    }


def _compared(windows_seen: Sequence[Window], other_windows: Sequence[Window]) -> dict[str, float]:
    """Return the ratios with levels chosen on other markets, and of the market's mean in hindsight."""
    left_out = held_out(windows_seen, other_windows)
    last = [abs(window.last - window.cost) for window in windows_seen]
    mean_errors = [abs(window.hindsight - window.cost) for window in windows_seen]
    return {
        "held_out_error_ratio": _ratio(median(left_out), median(last)),
        "held_out_mean_error_ratio": _ratio(fmean(left_out), fmean(last)),
        "hindsight_error_ratio": _ratio(median(mean_errors), median(last)),
        "hindsight_mean_error_ratio": _ratio(fmean(mean_errors), fmean(last)),
    }


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else inf


def by_market(windows_seen: Sequence[Window], scenarios: Sequence[Scenario]) -> dict[str, dict[str, float]]:
    """Return windows and independent weeks (those that share no day) of each market."""
    weeks: dict[str, int] = {}
    for scenario in scenarios:
        days = min(trace.seconds for trace in scenario.traces) / 86400
        weeks[market_of(scenario)] = max(0, int(days / 7) - 1)
    return {
        market: {
            "windows": sum(window.market == market for window in windows_seen),
            "independent_weeks": weeks[market],
        }
        for market in sorted({window.market for window in windows_seen})
    }


def play(scenario: Scenario) -> list[Part]:
    """Replay the usual group on the traces of a scenario."""
    return parts(_question(scenario), scenario.traces)


def _question(scenario: Scenario) -> Question:
    return Question(
        slots=min(4, scenario.target),
        shares=(0.3,) * len(scenario.traces),
        policy="expected-cost",
        policy_parameters=(("shortageCost", 100.0),),
        warm=True,
    )


def measured(
    scenarios: Sequence[Scenario], workers: int | None = None
) -> tuple[list[Window], dict[str, Any]]:
    """Return the windows of each scenario, and all figures except times.

    ``workers``: how many processes replay (None: one per core).
    """
    long = [
        scenario for scenario in scenarios if min(trace.seconds for trace in scenario.traces) > 15 * 86400
    ]
    if workers == 1:
        played = list(map(play, long))
    else:
        with ProcessPoolExecutor(workers) as pool:
            played = list(pool.map(play, long))
    all_windows = [
        window
        for scenario, replayed in zip(long, played, strict=True)
        for window in windows(market_of(scenario), replayed)
    ]
    markets = by_market(all_windows, long)
    return all_windows, {
        **judged(all_windows),
        "independent_weeks": sum(int(market["independent_weeks"]) for market in markets.values()),
        "markets": markets,
    }


def both_worlds(scenarios: Sequence[Scenario], drawn: Sequence[Scenario]) -> dict[str, Any]:
    """Return the figures of the traces, and as ``model`` those of the model's markets."""
    trace_windows, summary = measured(scenarios)
    seen_drawn, figures = measured(drawn)
    for own_windows, other_windows, result in (
        (trace_windows, seen_drawn, summary),
        (seen_drawn, trace_windows, figures),
    ):
        left_out = _compared(own_windows, other_windows)
        result |= {f"{key}_both_worlds": left_out[key] for key in left_out if key.startswith("held_out")}
    return {**summary, "model": {key: value for key, value in figures.items() if key != "markets"}}


def _share(world: Mapping[str, Any], key: str) -> str:
    return f"{world[key]:.0%}"


def _ratio_text(world: Mapping[str, Any], key: str) -> str:
    return f"{world[key]:.2f}" if key in world else ""


_FIGURES: Final = (
    ("weeks with the cost in the range", "cost_coverage", _share),
    ("weeks with the shortage in the range", "shortage_coverage", _share),
    ("median error of the cost ÷ that of last week", "error_ratio", _ratio_text),
    ("mean error of the cost ÷ that of last week", "mean_error_ratio", _ratio_text),
    ("median error, market left out", "held_out_error_ratio", _ratio_text),
    ("median error, market left out, both worlds", "held_out_error_ratio_both_worlds", _ratio_text),
    ("median error, known mean", "hindsight_error_ratio", _ratio_text),
    ("median error of the shortage ÷ that of last week", "shortage_error_ratio", _ratio_text),
)
"""The rows of the page: name, key, and format."""


def document(docs: Path, result: Mapping[str, Any]) -> None:
    """Write this benchmark's part of the page."""
    model = result.get("model")
    source = "the traces" if result["source"] == "traces" else "markets of the fitted model"
    summary_text = (
        f"On {source}, every half day after the first week: {result['windows']} overlapping forecasts of the "
        f"following week, {result['independent_weeks']} weeks without overlap. Ranges should contain four "
        "weeks in five; their spreads are fitted to the other markets. Errors are those of the middle ÷ "
        'those of "like last week". The rule for the level of costs was chosen with the traces in sight, and '
        f"with markets 1 to {MODEL_SEEDS[0] - 1} of the model, which are not judged here. *Left out*: a rule "
        "chosen on the other markets, of this world or of both. *Known mean*: the error with the mean of the "
        "whole recording, the forecast week included."
    )
    worlds = [result] if model is None else [result, model]
    figures = [(name, *(show(world, key) for world in worlds)) for name, key, show in _FIGURES]
    columns = ("", "traces", "the model's markets") if model else ("", "figure")
    markets = [
        (_in_days(market), str(row["windows"]), str(row["independent_weeks"]))
        for market, row in result["markets"].items()
    ]
    across = result["unknown"]
    unknown_text = (
        f"Without a history of the market: of {across['weeks']} weeks (one a day) of {across['markets']} "
        "markets, forecast across drawn markets with the spreads of the other markets, these have their "
        "figure in the range:"
    )
    covered = [(name, f"{across[name]:.0%}") for name in ("cost", "shortage", "interruptions")]
    text = [
        *("## Forecasts and outcomes", summary_text, table(columns, figures)),
        *(unknown_text, table(("without a history", "weeks in the range"), covered)),
        *(table(("market, its length", "forecasts", "weeks without overlap"), markets)),
    ]
    replace_part(docs, "forecast", "\n\n".join(text))


def _in_days(market: str) -> str:
    """Return a market's name with the length of its traces in days."""
    region, _, seconds = market.removesuffix(" s").rpartition(", ")
    return f"{region}, {float(seconds) / 86400:.0f} days" if region else market


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    parser = parser_of(__doc__, "forecast", docs=True)
    parser.add_argument("--scenarios", type=int, help="use only this many scenarios, and write no page")
    args = parser.parse_args(arguments)
    source, scenarios = chosen(args.scenarios, days=_DAYS)
    drawn = modelled(_DAYS, MODEL_SEEDS[: args.scenarios])
    on_traces = source == "traces"
    summary = both_worlds(scenarios, drawn) if on_traces else measured(drawn)[1]
    spreads, across = unknown_markets(scenarios if on_traces else drawn)
    print(f"  across markets: {spreads}")
    result = {"source": source, **summary, "unknown": across}
    write(args.out, result)
    if args.scenarios is None:
        document(args.docs, result)
    for key, value in result.items():
        if isinstance(value, int | float):
            print(f"  {key}: {value:.3f}" if isinstance(value, float) else f"  {key}: {value}")


if __name__ == "__main__":
    main()
