"""Optuna's pruners and its best trial, beside ours, in random studies; prints what differs."""

from __future__ import annotations

import json
import random
import sys

import optuna

from contracts.agent.study import Pruning, Study, TrialResult
from userdata.agent.study import history
from userdata.agent.study.history import TrialRow
from userdata.agent.study.reports import add_report

STEPS = 20
TRIALS = 40


def values(chance: random.Random) -> list[float]:
    """Return a trial's values by step: with ties, and some that are not numbers."""
    level = chance.choice([0.1, 0.3, 0.5, 0.7])
    return [
        float("nan") if chance.random() < 0.02 else round(level + chance.uniform(-0.2, 0.2), 1)
        for _ in range(STEPS)
    ]


def pruner(prune: Pruning) -> optuna.pruners.BasePruner:
    if prune.rule == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=prune.min_steps, reduction_factor=prune.factor
        )
    return optuna.pruners.MedianPruner(n_startup_trials=0, n_min_trials=prune.min_trials)


def play(seed: int, prune: Pruning, goal: str) -> dict[str, object]:
    chance = random.Random(seed)
    theirs = optuna.create_study(direction=goal, pruner=pruner(prune))
    ours, by_optuna = [], []
    for number in range(TRIALS):
        trial, curve, result = theirs.ask(), values(chance), TrialResult("r", {"A": "1"})
        if number == 0:  # without a complete trial Optuna's median lets NaN pass
            curve = [0.5 if value != value else value for value in curve]
        end: tuple[str, int] = ("complete", STEPS)
        for step, value in enumerate(curve, 1):
            result = add_report(result, prune, step, value)
            at_rung = step == prune.step_of(prune.rungs_until(step) - 1)
            if prune.rule == "asha" or at_rung:  # the median is of the values at rungs only
                trial.report(value, step)
            if at_rung and trial.should_prune():
                end = ("pruned", step)
                break
        by_optuna.append(end)
        final = curve[end[1] - 1]
        if prune.rule == "median":
            # A trial that is pruned counts for the median as far as it came: Optuna takes complete ones only.
            theirs.tell(trial, 0.0)
        elif end[0] == "complete" and final == final:
            theirs.tell(trial, final)
        else:
            theirs.tell(trial, state=optuna.trial.TrialState.PRUNED)
        for step in range(end[1] + 1, STEPS + 1):  # it continues until the decision is known
            result = add_report(result, prune, step, curve[step - 1])
        ours.append(TrialRow(result, "done"))
    outcomes = history.outcomes(Study(TRIALS, 1, prune=prune, goal=goal), ours)  # type: ignore[arg-type]
    differ = sum(
        (outcome.state, outcome.step) != end for outcome, end in zip(outcomes, by_optuna, strict=True)
    )
    found: dict[str, object] = {"differ": differ, "pruned": sum(end[0] == "pruned" for end in by_optuna)}
    complete = [
        (outcome.value, number)
        for number, outcome in enumerate(outcomes)
        if outcome.state == "complete" and outcome.value == outcome.value
    ]
    if prune.rule == "asha" and complete:
        best = min if goal == "minimize" else max
        found["best"] = theirs.best_value == best(value for value, _ in complete if value is not None)
    return found


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    plays = [
        play(seed, prune, goal)
        for seed in range(int(sys.argv[1]))
        for prune in (Pruning(), Pruning("asha", 2, 2), Pruning("median", factor=2, min_trials=3))
        for goal in ("minimize", "maximize")
    ]
    json.dump(
        {
            "plays": len(plays),
            "differ": sum(int(str(one["differ"])) for one in plays),
            "pruned": sum(int(str(one["pruned"])) for one in plays),
            "other_best": sum(one.get("best") is False for one in plays),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
