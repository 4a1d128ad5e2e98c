"""Forecast the cost and the shortage of the next week, at every half day of the traces, and look what came.

    GPU_SPOT_TRACES=… python -m bench.market.forecast [--out FILE] [--docs docs] [--scenarios N] [--groups 50]

A window is the part of a market before a moment, at least a week, and the week after it. The spreads of the
range are fitted to the other markets alone. Then a stack file of many groups is forecast on two cores, and
what ``gpu-spot advise`` would have chosen before each window is compared with the best of its search. Without
the traces the fitted model's markets are forecast.
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
from gpu_spot.forecast.ranges import WEEK, SlotForecast, Part, Spreads, after
from gpu_spot.forecast.replayed import Question, parts

WANTED: Final = 0.999
_USUAL: Final = 100.0
_COUNTS: Final = 2
"""All zones, and one less."""
_WEEK_MINUTES: Final = 7 * 1440
_FREE: Final = Spreads(0.0, 0.0)


@dataclass(frozen=True)
class Window:
    """One forecast, and what came: ``cost`` a fraction of on-demand, ``shortage`` minutes a slot and week."""

    market: str
    before: tuple[Part, ...]
    cost: float
    shortage: float


def market_of(scenario: Scenario) -> str:
    """Return what has the same weather: traces of one region that begin together, whatever the type."""
    zone, _, kind = scenario.traces[0].name.partition("_")
    if not kind:
        return scenario.name  # drawn from the model, each for itself
    return f"{zone[:-1]}, {scenario.traces[0].seconds:.0f} s"


def windows(market: str, played: Sequence[Part]) -> Iterator[Window]:
    """Yield the windows of one replayed market."""
    for now in range(WEEK, len(played) - WEEK + 1):
        cost, shortage = came(played[now : now + WEEK])
        yield Window(market, tuple(played[:now]), cost, shortage)


def came(week: Sequence[Part]) -> tuple[float, float]:
    """Return what a week came to."""
    return fmean(part.cost for part in week), sum(part.shortage for part in week)


def fit(found: Sequence[Window]) -> Spreads:
    """Return the spreads that hold four windows in five."""
    outlooks = [after(one.before, _FREE) for one in found]
    cost = [abs(log(w.cost / o.cost.middle)) for w, o in zip(found, outlooks, strict=True)]
    root = [abs(sqrt(w.shortage) - sqrt(o.shortage.middle)) for w, o in zip(found, outlooks, strict=True)]
    return Spreads(_most(cost), _most(root))


def _most(values: Sequence[float], share: float = 0.8) -> float:
    return sorted(values)[int(share * len(values))]


def judged(found: Sequence[Window]) -> dict[str, Any]:
    """Return how often ranges held, with the spreads of the other markets, and errors ÷ "like last week"."""
    held_cost = held_shortage = 0
    ours: list[float] = []
    last: list[float] = []
    missed: list[float] = []
    missed_last: list[float] = []
    for market in sorted({one.market for one in found}):
        here = [one for one in found if one.market == market]
        spreads = fit([one for one in found if one.market != market] or here)
        for one in here:
            outlook = after(one.before, spreads)
            held_cost += outlook.cost.low <= one.cost <= outlook.cost.high
            held_shortage += outlook.shortage.low <= one.shortage <= outlook.shortage.high
            cost, shortage = came(one.before[-WEEK:])
            ours.append(abs(outlook.cost.middle - one.cost))
            last.append(abs(cost - one.cost))
            missed.append(abs(outlook.shortage.middle - one.shortage))
            missed_last.append(abs(shortage - one.shortage))
    return {
        "windows": len(found),
        "cost_coverage": held_cost / len(found),
        "shortage_coverage": held_shortage / len(found),
        "error_ratio": _ratio(median(ours), median(last)),
        "mean_error_ratio": _ratio(fmean(ours), fmean(last)),
        "shortage_error_ratio": _ratio(median(missed), median(missed_last)),
    }


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else inf


def by_market(found: Sequence[Window], scenarios: Sequence[Scenario]) -> dict[str, dict[str, float]]:
    """Return windows and independent weeks (those that share no day) of each market."""
    weeks: dict[str, int] = {}
    for one in scenarios:
        days = min(trace.seconds for trace in one.traces) / 86400
        weeks[market_of(one)] = max(0, int(days / 7) - 1)
    return {
        market: {"windows": sum(one.market == market for one in found), "independent_weeks": weeks[market]}
        for market in sorted({one.market for one in found})
    }


def tried(scenario: Scenario) -> list[tuple[Option, Question]]:
    """Return what advice chooses between on recorded traces: zones and the price of a shortage."""
    names = [trace.name for trace in scenario.traces]
    counts = range(len(names), max(0, len(names) - _COUNTS), -1)
    return [
        (Option((), tuple(names[:count]), cost, 0), question(scenario, count, cost))
        for count in counts
        for cost in SHORTAGE_COSTS
    ]


def question(scenario: Scenario, pools: int, shortage_cost: float) -> Question:
    """Return what is replayed of a scenario."""
    return Question(
        slots=min(4, scenario.target),
        shares=(0.3,) * pools,
        policy="expected-cost",
        policy_parameters=(("shortageCost", shortage_cost),),
        warm=True,
    )


def play(asked: tuple[Scenario, Question]) -> list[Part]:
    """Replay one question on the traces of a scenario."""
    scenario, one = asked
    return parts(one, scenario.traces[: len(one.shares)])


def regrets(options: Mapping[Option, Sequence[Part]]) -> list[tuple[float, bool]]:
    """Return for each window what the choice cost ÷ the best - 1, and whether it was as available as wanted.

    The best is the cheapest of the search that was as available as wanted, or else as the choice was.
    """
    found = []
    length = min(map(len, options.values()))
    for now in range(WEEK, length - WEEK + 1):
        expected = [_trial(option, after(played[:now])) for option, played in options.items()]
        picked = choose(expected, availability=WANTED) or max(expected, key=lambda one: one.availability)
        weeks = {option: came(played[now : now + WEEK]) for option, played in options.items()}
        ready = {option: 1 - shortage / _WEEK_MINUTES for option, (_, shortage) in weeks.items()}
        enough = min(WANTED, ready[picked.option])
        best = min(cost for option, (cost, _) in weeks.items() if ready[option] >= enough)
        found.append((weeks[picked.option][0] / best - 1, ready[picked.option] >= WANTED))
    return found


def _trial(option: Option, outlook: SlotForecast) -> Trial:
    return Trial(option, outlook.cost.middle, 1 - outlook.shortage.middle / _WEEK_MINUTES)


def replayed(scenarios: Sequence[Scenario], workers: int | None) -> dict[str, dict[Option, list[Part]]]:
    """Return by scenario what each option came to, so many options side by side (None: one a core)."""
    asked = [(one, option, asking) for one in scenarios for option, asking in tried(one)]
    tasks = [(one, asking) for one, _, asking in asked]
    if workers == 1:
        played = list(map(play, tasks))
    else:
        with ProcessPoolExecutor(workers) as pool:
            played = list(pool.map(play, tasks))
    found: dict[str, dict[Option, list[Part]]] = {}
    for (one, option, _), result in zip(asked, played, strict=True):
        found.setdefault(one.name, {})[option] = result
    return found


def measured(
    scenarios: Sequence[Scenario], workers: int | None = None
) -> tuple[list[Window], dict[str, Any]]:
    """Return the windows of the usual group on each scenario, and all figures but times."""
    long = [one for one in scenarios if min(trace.seconds for trace in one.traces) > 15 * 86400]
    options = replayed(long, workers)
    found: list[Window] = []
    regretted: list[tuple[float, bool]] = []
    for one in long:
        usual = next(
            played
            for option, played in options[one.name].items()
            if option.shortage_cost == _USUAL and len(option.zones) == len(one.traces)
        )
        found += windows(market_of(one), usual)
        regretted += regrets(options[one.name])
    markets = by_market(found, long)
    return found, {
        **judged(found),
        "independent_weeks": sum(int(market["independent_weeks"]) for market in markets.values()),
        "markets": markets,
        "advise_regret": fmean(regret for regret, _ in regretted),
        "worst_advise_regret": max(regret for regret, _ in regretted),
        "advise_kept": fmean(kept for _, kept in regretted),
    }


def document(docs: Path, result: Mapping[str, Any], groups: int) -> None:
    """Write this benchmark's part of ``performance.md``."""
    source = "the traces" if result["source"] == "traces" else "markets of the fitted model"
    told = (
        f"On {source}, at every half day after the first week: {result['windows']} forecasts of the week "
        f"that followed, overlapping, in {result['independent_weeks']} weeks that share no day. Ranges "
        "shall hold four weeks in five; their spreads are fitted to the other markets alone. An error is "
        'that of the middle, ÷ that of "like last week". Advice is for an availability of '
        f"{WANTED:.1%}, among {len(SHORTAGE_COSTS)} prices of a shortage and all zones or one less; its cost "
        "is compared with the cheapest of its search that turned out as available. How the rules were chosen "
        "with these markets in sight, and what that flatters: "
        "[ADR 0043](adr/0043-forecast-from-a-weeks-replay.md)."
    )
    busy, clock = (result[f"{what}seconds_{groups}_groups"] for what in ("cpu_", ""))
    timed_too = (
        f"A stack of {groups} groups and a change of it, on two cores: {busy:.0f} s of CPU time, "
        f"{clock:.0f} s on the clock of a machine that may have had other work."
    )
    figures = [
        ("weeks whose cost was within the range", f"{result['cost_coverage']:.0%}"),
        ("weeks whose shortage was", f"{result['shortage_coverage']:.0%}"),
        ("median error of the cost ÷ that of last week", f"{result['error_ratio']:.2f}"),
        ("mean error of the cost ÷ that of last week", f"{result['mean_error_ratio']:.2f}"),
        ("median error of the shortage ÷ that of last week", f"{result['shortage_error_ratio']:.2f}"),
        ("advice: dearer than the best, mean", f"{result['advise_regret']:.1%}"),
        ("advice: dearer than the best, worst week", f"{result['worst_advise_regret']:.0%}"),
        ("advice: weeks as available as was asked", f"{result['advise_kept']:.0%}"),
    ]
    markets = [
        (_in_days(market), str(one["windows"]), str(one["independent_weeks"]))
        for market, one in result["markets"].items()
    ]
    text = [
        *("## Forecast against what came", told, table(("", "figure"), figures)),
        *(table(("market, its length", "forecasts", "weeks that share no day"), markets), timed_too),
    ]
    replace_part(docs / "performance.md", "forecast", "\n\n".join(text))


def _in_days(market: str) -> str:
    """Return a market's name with the length of its traces in days."""
    region, _, seconds = market.removesuffix(" s").rpartition(", ")
    return f"{region}, {float(seconds) / 86400:.0f} days" if region else market


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    parser = parser_of(__doc__, "forecast", docs=True)
    parser.add_argument("--scenarios", type=int, help="only the first so many, and no page")
    parser.add_argument("--groups", type=int, default=50, help="of the stack that is timed (50; 0: none)")
    args = parser.parse_args(arguments)
    source, scenarios = chosen(args.scenarios, days=45)
    _, told = measured(scenarios)
    result = {"source": source, **told, **(timed(args.groups) if args.groups else {})}
    write(args.out, result)
    if args.groups and args.scenarios is None:
        document(args.docs, result, args.groups)
    for key, value in result.items():
        if isinstance(value, int | float):
            print(f"  {key}: {value:.3f}" if isinstance(value, float) else f"  {key}: {value}")


if __name__ == "__main__":
    main()
