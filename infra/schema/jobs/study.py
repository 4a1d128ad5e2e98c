"""Settings of ``training[].study``: trials whose parameters a sampler suggests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.agent import study as agent
from infra.schema.base import Model, Number, check_unique
from infra.schema.jobs.matrix import Value

_ON_ONE_GPU: Final = "allowed: 1 (a trial has its instance to itself; several on one GPU are not supported)"


class StudyParameter(Model):
    """A parameter of the trials: a list of values, or a range."""

    name: limits.EnvironmentName
    """Its environment variable."""
    values: Annotated[tuple[Value, ...], Field(max_length=1000)] = ()
    """Its values, if they are a list."""
    min: Number | None = None
    """Lowest value of a range."""
    max: Number | None = None
    """Highest value of a range."""
    step: Annotated[Number, Field(ge=0)] = 0.0
    """Distance of two values of a range. 0: any number in it."""
    log: bool = False
    """Whether values of a range are drawn uniformly in their logarithm."""

    @model_validator(mode="after")
    def _values_or_range(self) -> StudyParameter:
        if self.values:
            if self.min is not None or self.max is not None or self.step or self.log:
                raise ValueError("values and a range, allowed: one of them")
            if repeated := [value for value in self.values if self.values.count(value) > 1]:
                raise ValueError(f"{repeated[0]!r} twice, allowed: each value once")
        elif self.min is None or self.max is None or not self.min < self.max:
            raise ValueError(f"min {self.min} and max {self.max}, allowed: values, or a min below a max")
        elif self.log and (self.step or self.min <= 0):
            raise ValueError(f"log with min {self.min:g}, step {self.step:g}, allowed: min above 0, no step")
        elif self.step and not 2 <= self.setting.count <= agent.MAX_TRIALS:
            raise ValueError(
                f"step {self.step:g} makes {self.setting.count} values, allowed: 2 to {agent.MAX_TRIALS}"
            )
        return self

    @property
    def setting(self) -> agent.StudyParameter:
        """The parameter as the agent reads it."""
        if self.values:
            return agent.StudyParameter(self.values)
        minimum, maximum = float(self.min or 0), float(self.max or 0)
        return agent.StudyParameter(min=minimum, max=maximum, step=float(self.step), log=self.log)


class StudyMetric(Model):
    """What the trials report with ``spot_training.report(value, step)``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_./-]{0,63}$")] = "loss"
    """Its name, for display."""
    goal: agent.Goal = "minimize"
    """Which of two values is better: the lower (``minimize``) or the higher one (``maximize``)."""


class Pruning(Model):
    """When a trial ends early."""

    rule: agent.PruningRule = "asha"
    """``asha``: successive halving; a trial continues if it is in the best 1/``factor`` of those at
    the same step. ``median``: it continues if its best value is not worse than the others' median there."""
    min_steps: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1
    """Step of the first comparison, as the script reports it; the next ones are at ``factor`` times the step
    before."""
    factor: Annotated[int, Field(ge=2, le=100)] = 3
    """See ``minSteps``."""
    min_trials: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of other trials below which ``median`` ends none."""


Combination: TypeAlias = Annotated[dict[limits.EnvironmentName, Value], Field(min_length=1)]


class Study(Model):
    """Trials of one job. They share one group, whose instances run one after another."""

    trials: Annotated[int, Field(ge=1, le=agent.MAX_TRIALS)] | None = None
    """Number of trials. Omitted: one for each combination of the values."""
    concurrency: Annotated[int, Field(ge=1, le=agent.MAX_CONCURRENCY)] | None = None
    """How many trials run at a time; ``capacity.target`` may be lower. Trial n is suggested and pruned by
    what trials 0 to n - ``concurrency`` reported, so lost instances do not change the study. Default:
    ``capacity.target``."""
    trials_per_gpu: Annotated[int, Field(alias="trialsPerGPU", ge=1)] = 1
    """Trials on one GPU at a time: 1, others are rejected."""
    sampler: agent.Sampler | None = None
    """``grid``: each combination once. ``random``. ``tpe``: Optuna's; the job's environment needs
    ``spot-training[optuna]``. Default: ``grid`` without ``trials``, else ``random``."""
    metric: StudyMetric = Field(default_factory=StudyMetric)
    """What is compared."""
    prune: Pruning | None = None
    """When a trial ends early. Omitted: never."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the sampler."""
    parameters: tuple[StudyParameter, ...] = ()
    """What a sampler chooses for each trial."""
    combinations: tuple[Combination, ...] = ()
    """Instead of ``parameters``: the variables of each trial."""

    @field_validator("trials_per_gpu")
    @classmethod
    def _one_on_a_gpu(cls, trials: int) -> int:
        if trials != 1:
            raise ValueError(f"{trials}, {_ON_ONE_GPU}")
        return trials

    @field_validator("parameters")
    @classmethod
    def _named_once(cls, parameters: tuple[StudyParameter, ...]) -> tuple[StudyParameter, ...]:
        check_unique([parameter.name for parameter in parameters], "parameters")
        return parameters

    @field_validator("combinations")
    @classmethod
    def _combinations_alike(
        cls, combinations: tuple[dict[str, str], ...], info: ValidationInfo
    ) -> tuple[dict[str, str], ...]:
        if bool(combinations) == bool(info.data.get("parameters")):
            raise ValueError("allowed: either parameters or combinations")
        if any(values.keys() != combinations[0].keys() for values in combinations):
            raise ValueError("with different variables, allowed: the same variables in each")
        if len({tuple(sorted(values.items())) for values in combinations}) < len(combinations):
            raise ValueError("with one of them twice, allowed: each once")
        return combinations

    @model_validator(mode="after")
    def _trials_of_the_sampler(self) -> Study:
        if not self.parameters and not self.combinations:
            raise ValueError("without parameters, allowed: either parameters or combinations")
        if self.combinations and self.sampler is not None:
            raise ValueError(f"sampler {self.sampler!r} with combinations, allowed: without")
        count = len(self.combinations) or agent.count_combinations(self._parameters)
        if self.trials is None or self.combinations or self.sampler == "grid":
            if not count:
                raise ValueError("without trials and with a range without step, allowed: with trials")
            if count > agent.MAX_TRIALS:
                raise ValueError(f"{count} combinations, allowed: at most {agent.MAX_TRIALS}")
            if (self.trials or count) != count:
                raise ValueError(f"trials {self.trials} of {count} combinations, allowed: without trials")
            if self.sampler in ("random", "tpe"):
                raise ValueError(f"sampler {self.sampler!r} without trials, allowed: with trials")
        return self

    @property
    def _parameters(self) -> dict[str, agent.StudyParameter]:
        return {parameter.name: parameter.setting for parameter in self.parameters}

    @property
    def longest_values(self) -> Mapping[str, str]:
        """The longest text of each variable in the user data, or of a trial, for its size."""
        if self.combinations:
            text = json.dumps(self.combinations)
            return {name: text if number == 0 else "" for number, name in enumerate(self.combinations[0])}
        return {
            parameter.name: " ".join(parameter.values) if parameter.values else "0" * 16
            for parameter in self.parameters
        }

    def settings(self, target: int) -> agent.Study:
        """Return the study as the agent reads it, on ``target`` instances."""
        parameters = self._parameters
        is_grid = self.sampler == "grid" or (self.sampler is None and self.trials is None)
        pruning = self.prune
        prune = None
        if pruning is not None:
            prune = agent.Pruning(pruning.rule, pruning.min_steps, pruning.factor, pruning.min_trials)
        return agent.Study(
            trials=self.trials or len(self.combinations) or agent.count_combinations(parameters),
            concurrency=self.concurrency or max(1, target),
            parameters=parameters,
            combinations=tuple(map(dict, self.combinations)),
            sampler=self.sampler or ("grid" if is_grid else "random"),
            metric=self.metric.name,
            goal=self.metric.goal,
            prune=prune,
            seed=self.seed,
        )
