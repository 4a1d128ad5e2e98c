"""Forecast cost and shortage of the next week at every half day of the traces, and compare with the replay.

    GPU_SPOT_TRACES=… python -m bench.market.forecast [--out FILE] [--docs docs] [--scenarios N] [--groups 50]

A window is at least a week of a market before a moment, and the week after it. The spreads of the range are
fitted to the other markets only. Then a stack file of many groups is forecast on two cores, and the choice of
``gpu-spot advise`` before each window is compared with the best of its search. Without the traces the fitted
model's markets are forecast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import inf, log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from bench.parts.many_groups import timed
from bench.parts.page import replace_part, table
from bench.parts.run import parser_of, write
from bench.parts.scenarios import Scenario, chosen
from gpu_spot.forecast.advice import SHORTAGE_COSTS, Option, Trial, choose
from gpu_spot.forecast.ranges import WEEK, Part, SlotForecast, Spreads, after
from gpu_spot.forecast.replayed import Question, parts

MIN_AVAILABILITY: Final = 0.999
_USUAL: Final = 100.0
_COUNTS: Final = 2
"""All zones, and one less."""
_WEEK_MINUTES: Final = 7 * 1440
_FREE: Final = Spreads(0.0, 0.0)


@dataclass(frozen=True)
class Window:
    """A forecast and its outcome: ``cost`` a fraction of On-Demand, ``shortage`` minutes a slot and week."""

    market: str
    before: tuple[Part, ...]
    cost: float
    shortage: float


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
        yield Window(market, tuple(played[:now]), cost, shortage)


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
        "shortage_error_ratio": _ratio(median(missed), median(missed_last)),
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


def tried(scenario: Scenario) -> list[tuple[Option, Question]]:
    """Return the search space of the advice on recorded traces: zones and shortage costs."""
    names = [trace.name for trace in scenario.traces]
    counts = range(len(names), max(0, len(names) - _COUNTS), -1)
    return [
        (Option((), tuple(names[:count]), cost, 0), question(scenario, count, cost))
        for count in counts
        for cost in SHORTAGE_COSTS
    ]


def question(scenario: Scenario, pools: int, shortage_cost: float) -> Question:
    """Return the replays of a scenario."""
    return Question(
        slots=min(4, scenario.target),
        shares=(0.3,) * pools,
        policy="expected-cost",
        policy_parameters=(("shortageCost", shortage_cost),),
        warm=True,
    )


def play(task: tuple[Scenario, Question]) -> list[Part]:
    """Replay one question on the traces of a scenario."""
    scenario, question = task
    return parts(question, scenario.traces[: len(question.shares)])


def regrets(options: Mapping[Option, Sequence[Part]]) -> list[tuple[float, bool]]:
    """Return for each window the choice's cost ÷ the best - 1, and whether it was available as required.

    The best is the cheapest with the required availability, else with at least the choice's.
    """
    pairs = []
    length = min(map(len, options.values()))
    for now in range(WEEK, length - WEEK + 1):
        expected = [_trial(option, after(played[:now])) for option, played in options.items()]
        picked = choose(expected, availability=MIN_AVAILABILITY) or max(
            expected, key=lambda choice: choice.availability
        )
        weeks = {option: came(played[now : now + WEEK]) for option, played in options.items()}
        ready = {option: 1 - shortage / _WEEK_MINUTES for option, (_, shortage) in weeks.items()}
        enough = min(MIN_AVAILABILITY, ready[picked.option])
        best = min(cost for option, (cost, _) in weeks.items() if ready[option] >= enough)
        pairs.append((weeks[picked.option][0] / best - 1, ready[picked.option] >= MIN_AVAILABILITY))
    return pairs


def _trial(option: Option, forecast: SlotForecast) -> Trial:
    return Trial(option, forecast.cost.middle, 1 - forecast.shortage.middle / _WEEK_MINUTES)


def replayed(scenarios: Sequence[Scenario], workers: int | None) -> dict[str, dict[Option, list[Part]]]:
    """Return the results of the options by scenario, with so many processes (None: one per core)."""
    requests = [
        (run_scenario, option, asking) for run_scenario in scenarios for option, asking in tried(run_scenario)
    ]
    tasks = [(run_scenario, asking) for run_scenario, _, asking in requests]
    if workers == 1:
        played = list(map(play, tasks))
    else:
        with ProcessPoolExecutor(workers) as pool:
            played = list(pool.map(play, tasks))
    parts_by_option: dict[str, dict[Option, list[Part]]] = {}
    for (run_scenario, option, _), result in zip(requests, played, strict=True):
        parts_by_option.setdefault(run_scenario.name, {})[option] = result
    return parts_by_option


def measured(
    scenarios: Sequence[Scenario], workers: int | None = None
) -> tuple[list[Window], dict[str, Any]]:
    """Return the windows of the usual group on each scenario, and all figures except times."""
    long = [
        scenario for scenario in scenarios if min(trace.seconds for trace in scenario.traces) > 15 * 86400
    ]
    options = replayed(long, workers)
    all_windows: list[Window] = []
    regretted: list[tuple[float, bool]] = []
    for scenario in long:
        usual = next(
            played
            for option, played in options[scenario.name].items()
            if option.shortage_cost == _USUAL and len(option.zones) == len(scenario.traces)
        )
        all_windows += windows(market_of(scenario), usual)
        regretted += regrets(options[scenario.name])
    markets = by_market(all_windows, long)
    return all_windows, {
        **judged(all_windows),
        "independent_weeks": sum(int(market["independent_weeks"]) for market in markets.values()),
        "markets": markets,
        "advise_regret": fmean(regret for regret, _ in regretted),
        "worst_advise_regret": max(regret for regret, _ in regretted),
        "advise_kept": fmean(is_available for _, is_available in regretted),
    }


def document(docs: Path, result: Mapping[str, Any], groups: int) -> None:
    """Write this benchmark's part of ``performance.md``."""
    source = "the traces" if result["source"] == "traces" else "markets of the fitted model"
    summary_text = (
        f"On {source}, every half day after the first week: {result['windows']} overlapping forecasts of the "
        f"following week, {result['independent_weeks']} weeks without overlap. Ranges should contain four "
        "weeks "
        "in five; their spreads are fitted to the other markets. Errors are those of the middle ÷ those of "
        f'"like last week". Advice is for an availability of {MIN_AVAILABILITY:.1%}, among '
        f"{len(SHORTAGE_COSTS)} shortage costs and all zones or one less, and compared with the cheapest "
        "result "
        "that was as available. The rules were chosen with these markets in sight: "
        "[0043](adr/0043-forecast-from-a-weeks-replay.md)."
    )
    busy, clock = (result[f"{prefix}seconds_{groups}_groups"] for prefix in ("cpu_", ""))
    timed_too = (
        f"A stack of {groups} groups and a change of it take {busy:.0f} s of CPU time on two cores, "
        f"{clock:.0f} s "
        "of wall time on a shared machine."
    )
    figures = [
        ("weeks with the cost in the range", f"{result['cost_coverage']:.0%}"),
        ("weeks with the shortage in the range", f"{result['shortage_coverage']:.0%}"),
        ("median error of the cost ÷ that of last week", f"{result['error_ratio']:.2f}"),
        ("mean error of the cost ÷ that of last week", f"{result['mean_error_ratio']:.2f}"),
        ("median error of the shortage ÷ that of last week", f"{result['shortage_error_ratio']:.2f}"),
        ("advice: cost above the best, mean", f"{result['advise_regret']:.1%}"),
        ("advice: cost above the best, worst week", f"{result['worst_advise_regret']:.0%}"),
        ("advice: weeks with the required availability", f"{result['advise_kept']:.0%}"),
    ]
    markets = [
        (_in_days(market), str(row["windows"]), str(row["independent_weeks"]))
        for market, row in result["markets"].items()
    ]
    text = [
        *("## Forecasts and outcomes", summary_text, table(("", "figure"), figures)),
        *(table(("market, its length", "forecasts", "weeks without overlap"), markets), timed_too),
    ]
    replace_part(docs / "performance.md", "forecast", "\n\n".join(text))


def _in_days(market: str) -> str:
    """Return a market's name with the length of its traces in days."""
    region, _, seconds = market.removesuffix(" s").rpartition(", ")
    return f"{region}, {float(seconds) / 86400:.0f} days" if region else market


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    parser = parser_of(__doc__, "forecast", docs=True)
    parser.add_argument("--scenarios", type=int, help="use only this many scenarios, and write no page")
    parser.add_argument("--groups", type=int, default=50, help="of the stack that is timed (50; 0: none)")
    args = parser.parse_args(arguments)
    source, scenarios = chosen(args.scenarios, days=45)
    _, summary = measured(scenarios)
    result = {"source": source, **summary, **(timed(args.groups) if args.groups else {})}
    write(args.out, result)
    if args.groups and args.scenarios is None:
        document(args.docs, result, args.groups)
    for key, value in result.items():
        if isinstance(value, int | float):
            print(f"  {key}: {value:.3f}" if isinstance(value, float) else f"  {key}: {value}")


if __name__ == "__main__":
    main()
