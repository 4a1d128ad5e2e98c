"""A trial of a study on this instance: its parameters, its reports, its early end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contracts.agent.config import Training
from contracts.agent.names import JOB_HOME
from contracts.agent.study import Study
from userdata.agent.aws.experiments import ExperimentJobs
from userdata.agent.aws.jobs import Jobs
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.study import history, sampling
from userdata.agent.study.history import TrialRow
from userdata.agent.study.leases import trial_rows
from userdata.agent.study.monitor import TrialMonitor
from userdata.agent.study.reports import ReportReader, read_answer
from userdata.agent.study.table import TrialTable
from userdata.agent.tasks import job
from userdata.agent.tasks.groups import experiments
from userdata.agent.tasks.node import Node
from userdata.agent.work.failures.fault_handler import RunEnd
from userdata.agent.work.training.environment import JobEnvironment

REPORTS_VARIABLE: Final = "GPU_SPOT_REPORTS"
_REQUEST: Final = ".suggest.json"
_RESPONSE: Final = ".suggested.json"


class RunningTrial(TrialMonitor):
    """The trial whose lease this instance holds."""

    def __init__(self, node: Node, jobs: Jobs, study: Study) -> None:
        self._node, self._jobs, self._training = node, jobs, job.training(node)
        self._names = job.experiment_names(node)
        number = self._names.index(self._training.job)
        self._reports_file = job.checkpoints(node) / f".reports-{self._training.revision}.jsonl"
        dynamodb = node.clients.dynamodb(node.config.region)
        super().__init__(
            study,
            number,
            ReportReader(self._reports_file),
            TrialTable(
                dynamodb,
                self._training.job_table,
                self._training.job,
                node.identity.instance,
                self._training.revision,
            ),
            self._rows,
            node.clock,
        )

    def variables(self, environment: JobEnvironment, code: Path) -> dict[str, str]:
        """Return the trial's variables; its parameters are suggested and stored if they are not yet.

        Raises:
            AgentError: Optuna failed, or DynamoDB returned an error or is unreachable.
        """
        result = self.begin()
        parameters = dict(result.parameters)
        if not parameters:
            parameters = self._suggest(environment, code)
            self.record_parameters(parameters)
            log.info("trial parameters suggested", **parameters)
        return {**parameters, REPORTS_VARIABLE: str(self._reports_file)}

    def end(self) -> RunEnd:
        """End a pruned trial: for the group it is done."""
        assert self.pruned is not None
        self._jobs.mark("done", f"pruned at step {self.pruned.step}")
        return "done"

    def _suggest(self, environment: JobEnvironment, code: Path) -> dict[str, str]:
        study, number = self._study, self._number
        if not sampling.needs_history(study):
            return sampling.suggest(study, number)
        rows = self._rows(number)
        visible = history.seen_by(study, history.outcomes(study, rows), number)
        if visible is None:
            raise AgentError(f"trial {number}: results that it depends on are missing")
        parameters = [row.result.parameters for row in rows]
        response = _ask_optuna(
            self._node,
            self._training,
            json.dumps(sampling.request(study, number, visible, parameters)),
            environment,
            code,
        )
        try:
            return sampling.parse_answer(study, response)
        except ValueError as error:
            raise AgentError(f"spot-training suggest: {error}") from None

    def _rows(self, count: int) -> Sequence[TrialRow]:
        if not count:
            return []
        table = experiments.experiment_table(self._node, self._names[:count])
        return trial_rows([*table.read().values()], self._training.revision)


def trial(node: Node, jobs: Jobs) -> RunningTrial:
    """Return the trial of ``node``. Its reports are stored before ``jobs`` writes its end."""
    study = job.training(node).study
    assert study is not None
    running = RunningTrial(node, jobs, study)
    assert isinstance(jobs, ExperimentJobs)
    jobs.before_end = running.flush
    return running


def _ask_optuna(
    node: Node, training: Training, question: str, environment: JobEnvironment, code: Path
) -> object:
    """Run Optuna's sampler in the job's environment, as the job's user; return its answer."""
    directory = job.checkpoints(node)
    (directory / _RESPONSE).unlink(missing_ok=True)
    files.write_below(directory, Path(_REQUEST), question)
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(JOB_HOME), **training.environment}
    command = ["spot-training", "suggest", str(directory / _REQUEST), str(directory / _RESPONSE)]
    start = environment.start(command, variables, code)
    as_user = ["runuser", "--user", environment.user, "--"] if environment.user else []
    try:
        node.host.run([*as_user, *start.argv], environment=start.environment)
    except AgentError as error:
        raise AgentError(f"study.sampler tpe: {error}") from None
    return read_answer(directory / _RESPONSE)
