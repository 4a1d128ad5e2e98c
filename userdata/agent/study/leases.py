"""The trials of a study as experiments that instances choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts.agent.study import Study, TrialResult
from contracts.jobs.item import JobItem
from userdata.agent.aws.experiments import parse_lease
from userdata.agent.lease.experiment_selection import ExperimentLease
from userdata.agent.study import history, sampling
from userdata.agent.study.history import TrialRow


def trial_rows(items: Sequence[JobItem], revision: str) -> list[TrialRow]:
    """Return what is stored of trials in a run of ``revision``; results of another run do not count."""
    new = TrialResult(revision)
    return [
        TrialRow(item.trial if item.trial.revision == revision else new, item.state_of(revision))
        for item in items
    ]


def trial_leases(study: Study, items: Mapping[str, JobItem], revision: str) -> dict[str, ExperimentLease]:
    """Return the leases of a study's trials, given in their order.

    New ones are started in that order, each once the results are known that its parameters depend on.
    """
    leases = {}
    rows = trial_rows([*items.values()], revision)
    outcomes = history.outcomes(study, rows) if sampling.needs_history(study) else []
    for number, (name, item) in enumerate(items.items()):
        lease = parse_lease(item, revision)
        is_ready = (
            not outcomes
            or bool(rows[number].result.parameters)
            or history.seen_by(study, outcomes, number) is not None
        )
        leases[name] = replace(lease, order=number, is_ready=is_ready)
    return leases
