"""A study has one history, whichever machines are lost while it runs."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.agent import study as studies
from contracts.agent.study import Pruning, Study, StudyParameter, TrialResult, trial_names
from contracts.jobs import item as job_item
from contracts.jobs.item import JobItem
from contracts.stored import ContractError
from spot_training import report
from tests.node import configs
from tests.node.clocks import FakeClock
from tests.node.jobs import REGION, node
from tests.node.metadata import MetadataServer
from tests.node.study_machines import SPACE, Losses, play, study
from tests.node.test_without_volume import MOUNTS, MountHost, without_volume
from userdata.agent import tasks
from userdata.agent.lease.experiment_selection import TakeExperiment, choose_experiment
from userdata.agent.machine.host import ProcessInfo
from userdata.agent.study import history, sampling
from userdata.agent.study.history import TrialOutcome, TrialRow
from userdata.agent.study.leases import trial_leases, trial_rows
from userdata.agent.study.reports import ReportReader, add_report
from userdata.agent.tasks import job as job_tasks

OFTEN = Losses(silent=0.01, announced=0.01, pause=0.004)
RUN = "r"


@pytest.mark.parametrize("prune", [Pruning(), Pruning("median", min_trials=2)], ids=["asha", "median"])
def test_lost_machines_do_not_change_the_history(prune: Pruning, tmp_path: Path) -> None:
    studied = study(16, 3, prune=prune)
    calm, lossy = play(studied, 3, tmp_path / "calm"), play(studied, 3, tmp_path / "lossy", OFTEN, seed=1)
    assert lossy.lost >= 3
    assert lossy.outcomes() == calm.outcomes()
    assert lossy.parameters() == calm.parameters()
    assert {outcome.state for outcome in calm.outcomes()} == {"complete", "pruned"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_no_order_of_losses_changes_it(seed: int, tmp_path: Path) -> None:
    studied = study(60, 8)
    calm = play(studied, 8, tmp_path / "calm", fails=[4])
    lossy = play(studied, 8, tmp_path / "lossy", OFTEN, seed=seed, fails=[4])
    assert lossy.lost > 20
    assert lossy.outcomes() == calm.outcomes()


def test_a_failed_trial_does_not_stop_the_study(tmp_path: Path) -> None:
    world = play(study(6, 2, prune=None), 2, tmp_path, fails=[1])
    states = [outcome.state for outcome in world.outcomes()]
    assert states == ["complete", "failed", *["complete"] * 4]
    assert world.items["resnet"]["state"]["S"] == "failed"
    assert "1 of 6 failed" in world.items["resnet"]["reason"]["S"]


ROWS = st.lists(
    st.builds(
        lambda values, state: TrialRow(
            TrialResult(RUN, {"A": "1"}, tuple(map(repr, values)), 1, "1.0"), state
        ),
        st.lists(st.sampled_from([0.1, 0.5, 0.9, float("nan")]), max_size=4),
        st.sampled_from(["", "running", "done", "failed"]),
    ),
    max_size=12,
)


@given(ROWS, st.integers(1, 4), st.sampled_from([Pruning(), Pruning("median", min_trials=1)]), st.data())
def test_what_has_ended_stays_whatever_comes_later(
    rows: list[TrialRow], concurrency: int, prune: Pruning, data: st.DataObject
) -> None:
    studied = Study(12, concurrency, prune=prune)
    before = history.outcomes(studied, rows)
    later = [
        row if row.state in ("done", "failed") else data.draw(st.just(_continued(row)) | st.just(row))
        for row in rows
    ]
    after = history.outcomes(studied, later)
    for old, new in zip(before, after, strict=True):
        if old.has_ended:
            assert repr(new) == repr(old)  # NaN equals itself
        else:
            assert repr(new.rungs[: len(old.rungs)]) == repr(old.rungs)


def _continued(row: TrialRow) -> TrialRow:
    return TrialRow(replace(row.result, rungs=(*row.result.rungs, "0.3", "0.2")), "done")


@given(ROWS, st.integers(1, 4), st.integers(0, 12))
def test_what_a_sampler_sees_never_changes(rows: list[TrialRow], concurrency: int, number: int) -> None:
    studied = Study(12, concurrency, prune=Pruning(), sampler="tpe")
    number = min(number, len(rows))
    seen = history.seen_by(studied, history.outcomes(studied, rows), number)
    later = [row if row.state in ("done", "failed") else _continued(row) for row in rows]
    if seen is not None:
        assert repr(history.seen_by(studied, history.outcomes(studied, later), number)) == repr(seen)


def test_a_decision_waits_for_earlier_trials_only() -> None:
    studied = Study(9, 2, prune=Pruning(factor=2))

    def row(*rungs: float, state: str = "running") -> TrialRow:
        return TrialRow(TrialResult(RUN, {}, tuple(map(repr, rungs)), 9, repr(0.5)), state)

    # Trial 2 is compared with trial 0 only, which has not come to the second rung.
    outcomes = history.outcomes(studied, [row(0.5), row(0.4, 0.4, 0.4), row(0.4, 0.9, 0.9, state="done")])
    assert outcomes[2] == TrialOutcome("running", (0.4, 0.9), 0.9, 2, is_open=True)
    outcomes = history.outcomes(studied, [row(0.5, 0.5), row(0.4), row(0.4, 0.9, 0.9, state="done")])
    assert outcomes[2] == TrialOutcome("pruned", (0.4, 0.9), 0.9, 2)


def test_results_of_another_revision_do_not_count() -> None:
    old = JobItem(state="done", revision="old", trial=TrialResult("old", {"A": "1"}, ("0.5",), 1, "0.5"))
    assert trial_rows([old], "new") == [TrialRow(TrialResult("new"), "")]
    assert trial_rows([replace(old, revision="new", state="running")], "new")[0].result.value == ""


def test_trials_begin_in_their_order_once_their_parameters_can_be_suggested() -> None:
    names = trial_names("resnet", study(4, 2))
    items = dict.fromkeys(names, JobItem())
    assert choose_experiment(trial_leases(study(4, 2), items, RUN), "i-1", 0) == TakeExperiment(names[0])
    by_results = study(4, 2, sampler="tpe")
    for name in names[:2]:
        items[name] = JobItem("running", revision=RUN, holder=f"i-{name}", lease_expires_at=99)
    leases = trial_leases(by_results, items, RUN)
    assert [lease.is_ready for lease in leases.values()] == [True, True, False, False]
    result = TrialResult(RUN, {"LR": "1"}, ("0.5",), 1, "0.5")
    items[names[0]] = replace(items[names[0]], trial=result)
    assert trial_leases(by_results, items, RUN)[names[2]].is_ready
    # What was suggested once is not asked for again.
    items[names[3]] = JobItem("running", revision=RUN, trial=TrialResult(RUN, {"LR": "1"}))
    assert trial_leases(by_results, items, RUN)[names[3]].is_ready


def test_the_first_value_of_a_step_counts(tmp_path: Path) -> None:
    result = TrialResult(RUN)
    for step, value in [(1, 0.9), (2, 0.8), (2, 0.1), (1, 0.1), (4, float("nan")), (10, 0.5)]:
        result = add_report(result, Pruning(), step, value)
    assert result.rungs == ("0.9", "nan", "0.5")  # rungs at 1, 3 and 9
    assert (result.step, result.value) == (10, "0.5")


def test_lines_of_any_kind_do_not_stop_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    reader = ReportReader(path)
    assert reader.read() == []
    path.write_bytes(b'[1, 0.5]\n[2, 0.\n\n[true, 1]\n["x"]\n[1e3, 1]\n{}\n\xff\n[3, NaN]\n[4, 0.2')
    assert repr(reader.read()) == "[(1, 0.5), (3, nan)]"
    with path.open("a") as file:
        file.write("5]\n")
    assert reader.read() == [(4, 0.25)]
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    os.mkfifo(pipe)
    assert ReportReader(link).read() == ReportReader(pipe).read() == []


@given(st.integers(0, 999))
def test_suggestions_are_values_of_the_space_and_depend_on_seed_and_number(number: int) -> None:
    first = sampling.suggest(study(1000, 1), number)
    assert first == sampling.suggest(study(1000, 1), number)
    assert 1e-5 <= float(first["LR"]) <= 1
    assert first["LAYERS"] in map(str, range(2, 9))
    assert first != sampling.suggest(study(1000, 1, seed=4), number)
    for name, text in first.items():
        parameter = SPACE[name]
        assert parameter.text(parameter.value(text)) == text


def test_random_suggestions_are_spread() -> None:
    drawn = [sampling.suggest(study(1000, 1), number) for number in range(300)]
    for layers in range(2, 9):
        assert 15 < sum(one["LAYERS"] == str(layers) for one in drawn) < 80
    assert 120 < sum(float(one["LR"]) < 10**-2.5 for one in drawn) < 180


def test_a_grid_and_a_list_are_tried_once_each() -> None:
    grid = Study(
        6, 1, {"A": StudyParameter(("x", "y")), "B": StudyParameter(min=1, max=3, step=1)}, sampler="grid"
    )
    tried = [sampling.suggest(grid, number) for number in range(6)]
    assert len({tuple(one.items()) for one in tried}) == 6
    assert tried[0] == {"A": "x", "B": "1"}
    listed = Study(2, 1, combinations=({"A": "x"}, {"A": "y"}))
    assert sampling.suggest(listed, 1) == {"A": "y"}


@pytest.mark.parametrize(
    "answer",
    [None, [], {"A": 1}, {"A": 1, "B": 5}, {"A": 0.5, "B": 1}, {"A": True, "B": 1}, {"A": "x", "B": 1}],
)
def test_an_answer_outside_the_space_is_refused(answer: object) -> None:
    studied = Study(
        6, 1, {"A": StudyParameter(("x", "y")), "B": StudyParameter(min=1, max=3, step=1)}, sampler="tpe"
    )
    assert sampling.parse_answer(studied, {"A": 1, "B": 2}) == {"A": "y", "B": "3"}
    with pytest.raises(ValueError, match="allowed"):
        sampling.parse_answer(studied, answer)


def test_names_change_with_what_a_trial_means_only() -> None:
    named = trial_names("resnet", study(20, 4))
    assert re.fullmatch(r"resnet-[0-9a-f]{4}-007", named[7])
    assert trial_names("resnet", study(30, 8))[:20] == named
    assert trial_names("resnet", study(20, 4, seed=9))[0] != named[0]
    longest = trial_names("a" * studies.MAX_NAME_LENGTH, study(studies.MAX_TRIALS, 4))[-1]
    assert len(longest) == 24


def test_a_study_with_a_volume_is_rejected() -> None:
    training = {**configs.training()["training"], "study": {"trials": 2}}
    with pytest.raises(ContractError, match="study: allowed without volume only"):
        configs.load(configs.training(training=training))


class TrialHost(MountHost):
    """A machine on which the command's process is the only one."""

    runs = False

    def processes(self) -> list[ProcessInfo]:
        pid = Script.pid
        return [ProcessInfo(pid, 1, "python", 1, pid, pid, 990, True)] if self.runs else []

    def signal(self, pid: int, number: Any) -> None:
        self.signals.append((pid, number))


class Script:
    """A command that reports a step each time that it is looked at, until it is signalled."""

    pid = 2**30  # unused
    STEPS = 40

    def __init__(self, variables: dict[str, str], host: TrialHost) -> None:
        self._variables, self._host, self._signals = variables, host, len(host.signals)
        self.step = 0
        host.runs = True

    def poll(self) -> int | None:
        if self.step == self.STEPS or len(self._host.signals) > self._signals:
            self._host.runs = False
            return 0
        self.step += 1
        value = {"good": 0.2, "bad": 0.9, "better": 0.1}[self._variables["A"]]
        report(value, self.step, environment=self._variables)
        return None


def test_an_instance_runs_trials_and_stops_one_that_is_pruned(
    aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    host = TrialHost()
    one = without_volume(node(aws, metadata_server, clock, tmp_path / "one", f"{REGION}a", host))  # type: ignore[arg-type]
    combinations = [{"A": "good"}, {"A": "bad"}, {"A": "better"}]
    studied = {"trials": 3, "combinations": combinations, "prune": {"factor": 2}}
    training = {**configs.training()["training"], "study": studied}
    one.config = configs.load(configs.training(volume=None, efs=MOUNTS, training=training))
    one.data = tmp_path / "data"
    scripts: list[Script] = []

    def spawn(argv: Any, env: dict[str, str], cwd: Path) -> Any:
        Path(env["GPU_SPOT_CHECKPOINTS"]).mkdir(parents=True)
        scripts.append(Script(env, host))
        return scripts[-1]

    one.spawn = spawn
    assert tasks.run(one) == 0
    assert [script.step for script in scripts][::2] == [Script.STEPS] * 2
    assert scripts[1].step < Script.STEPS / 2
    table = boto3.client("dynamodb", region_name=REGION)
    names = job_tasks.experiment_names(one)
    items = [table.get_item(TableName="jobs", Key={"job": {"S": name}})["Item"] for name in names]
    assert [item["state"]["S"] for item in items] == ["done"] * 3
    assert items[1]["reason"]["S"] == "pruned at step 1"
    declared = job_tasks.training(one).study
    assert declared is not None
    outcomes = history.outcomes(
        declared,
        trial_rows([*map(job_item.parse, items)], configs.REVISION),
    )
    assert [outcome.state for outcome in outcomes] == ["complete", "pruned", "complete"]
    assert outcomes[2].value == 0.1
    assert outcomes[2].step == Script.STEPS


@pytest.mark.parametrize("seed", range(3))
def test_a_rung_is_passed_by_about_one_in_factor(seed: int) -> None:
    chance = random.Random(seed)
    rows = [TrialRow(TrialResult(RUN, {}, (repr(chance.random()),), 1, "0"), "done") for _ in range(300)]
    states = [outcome.state for outcome in history.outcomes(Study(300, 8, prune=Pruning()), rows)]
    assert 80 < states.count("complete") < 125
