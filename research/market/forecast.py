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
from dataclasses import astuple, dataclass
from itertools import product
from math import inf, log, sqrt
from statistics import fmean, median
from typing import Any, Final, TypeAlias

from gpu_spot.forecast.ranges import WEEK, CostLevel, Part, SlotForecast, Spreads, after, cost_level
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
    outlooks = [(window, after(window.before, _FREE)) for window in windows_seen]
    cost = [abs(log(w.cost / o.cost.middle)) for w, o in outlooks]
    root = [abs(sqrt(w.shortage) - sqrt(o.shortage.middle)) for w, o in outlooks]
    return Spreads(_percentile(cost), _percentile(root))


def held_out(windows_seen: Sequence[Window], other_windows: Sequence[Window]) -> list[float]:
    """Return the errors of the cost with the level chosen for each market on the other markets.

    ``other_windows`` are windows of another world, which weigh as much as the other markets of this one.
    """
    every = [*windows_seen, *other_windows]
    errors = {
        level: [abs(cost_level(window.before, level) - window.cost) for window in every] for level in LEVELS
    }
    last = errors_of_last(every)
    count, result = len(windows_seen), [0.0] * len(windows_seen)
    for market in {window.market for window in windows_seen}:
        own_indices = [index for index in range(count) if windows_seen[index].market == market]
        rest = [index for index in range(count) if windows_seen[index].market != market]
        samples = [sample for sample in (rest, list(range(count, len(every)))) if sample] or [own_indices]

        def score(level: CostLevel, samples: Sequence[Sequence[int]] = samples) -> float:
            return sum(
                _ratio(median(errors[level][i] for i in sample), median(last[i] for i in sample))
                for sample in samples
            )

        best = min(LEVELS, key=score)
        for index in own_indices:
            result[index] = errors[best][index]
    return result


def errors_of_last(windows_seen: Sequence[Window]) -> list[float]:
    """Return the errors of the cost of "like last week"."""
    return [abs(window.last - window.cost) for window in windows_seen]


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


_UNKNOWN: Final = ("cost", "shortage", "interruptions")


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
    inside = list[list[bool]]()
    for market, own_weeks in weeks.items():
        other_weeks = [week for name, days in weeks.items() if name != market for week in days]
        limits = astuple(fit_across(other_weeks or own_weeks))
        inside += [[away <= limit for away, limit in zip(week, limits, strict=True)] for week in own_weeks]
    every = [week for days in weeks.values() for week in days]
    return fit_across(every), {
        "weeks": len(every),
        "markets": len(weeks),
        **dict(zip(_UNKNOWN, map(fmean, zip(*inside, strict=True)), strict=True)),
    }


def _percentile(values: Sequence[float], share: float = 0.8) -> float:
    return sorted(values)[int(share * len(values))]


def judged(windows_seen: Sequence[Window]) -> dict[str, Any]:
    """Return the coverage of the ranges with the other markets' spreads, and errors ÷ "like last week"."""
    forecasts: list[tuple[Window, SlotForecast]] = []
    for market in sorted({window.market for window in windows_seen}):
        own_windows = [window for window in windows_seen if window.market == market]
        spreads = fit([window for window in windows_seen if window.market != market] or own_windows)
        forecasts += [(window, after(window.before, spreads)) for window in own_windows]
    last = errors_of_last(windows_seen)
    missed = [abs(forecast.shortage.middle - window.shortage) for window, forecast in forecasts]
    missed_last = [abs(came(window.before[-WEEK:])[1] - window.shortage) for window in windows_seen]
    return {
        "windows": len(windows_seen),
        "cost_coverage": fmean(f.cost.low <= w.cost <= f.cost.high for w, f in forecasts),
        "shortage_coverage": fmean(f.shortage.low <= w.shortage <= f.shortage.high for w, f in forecasts),
        **_ratios("", [abs(forecast.cost.middle - window.cost) for window, forecast in forecasts], last),
        **_ratios("held_out_", held_out(windows_seen, ()), last),
        **_ratios("hindsight_", [abs(w.hindsight - w.cost) for w in windows_seen], last),
        "shortage_error_ratio": _ratio(median(missed), median(missed_last)),
    }


def _ratios(name: str, ours: Sequence[float], last: Sequence[float]) -> dict[str, float]:
    """Return median and mean of errors ÷ those of "like last week"."""
    return {
        f"{name}error_ratio": _ratio(median(ours), median(last)),
        f"{name}mean_error_ratio": _ratio(fmean(ours), fmean(last)),
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


def measured(scenarios: Sequence[Scenario]) -> tuple[list[Window], dict[str, Any]]:
    """Return the windows of each scenario, and all figures except times."""
    long = [
        scenario for scenario in scenarios if min(trace.seconds for trace in scenario.traces) > 15 * 86400
    ]
    with ProcessPoolExecutor() as pool:
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
        ratios = _ratios("held_out_", held_out(own_windows, other_windows), errors_of_last(own_windows))
        result |= {f"{key}_both_worlds": ratio for key, ratio in ratios.items()}
    return {**summary, "model": {key: value for key, value in figures.items() if key != "markets"}}


_FIGURES: Final = (
    ("weeks with the cost in the range", "cost_coverage", "{:.0%}"),
    ("weeks with the shortage in the range", "shortage_coverage", "{:.0%}"),
    ("median error of the cost ÷ that of last week", "error_ratio", "{:.2f}"),
    ("mean error of the cost ÷ that of last week", "mean_error_ratio", "{:.2f}"),
    ("median error, market left out", "held_out_error_ratio", "{:.2f}"),
    ("median error, market left out, both worlds", "held_out_error_ratio_both_worlds", "{:.2f}"),
    ("median error, known mean", "hindsight_error_ratio", "{:.2f}"),
    ("median error of the shortage ÷ that of last week", "shortage_error_ratio", "{:.2f}"),
)
"""The rows of the page: name, key, and format."""


def page_part(result: Mapping[str, Any]) -> str:
    """Return this benchmark's part of the page."""
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
    figures = [
        (name, *(form.format(world[key]) if key in world else "" for world in worlds))
        for name, key, form in _FIGURES
    ]
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
    covered = [(name, f"{across[name]:.0%}") for name in _UNKNOWN]
    text = [
        *("## Forecasts and outcomes", summary_text, table(columns, figures)),
        *(unknown_text, table(("without a history", "weeks in the range"), covered)),
        *(table(("market, its length", "forecasts", "weeks without overlap"), markets)),
    ]
    return "\n\n".join(text)


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
    result = {"source": source, **summary, "unknown": across}
    write(args.out, result)
    print(text := page_part(result), f"\nacross markets: {spreads}")
    if on_traces and args.scenarios is None:
        replace_part(args.docs, "forecast", text)


if __name__ == "__main__":
    main()
