"""The drill's experiment in AWS FIS: the template that the stack declares, started and looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contracts import names

ENDED: Final = ("completed", "stopped", "failed", "cancelled")
"""States in which an experiment changes no more (FIS API reference, ``ExperimentState``)."""


class DrillError(ValueError):
    """A drill cannot be started, or took nobody; one line that says why."""


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """How an experiment stands, in FIS' words."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DrillExperiments:
    """The experiments of one group of a stack."""

    fis: Any
    stack: str
    group: str

    def template(self) -> str:
        """Return the id of the group's template.

        Calls: one for each hundred templates of the region. Raises ``DrillError`` where it has none.
        """
        wanted = {names.TAG_STACK: self.stack, names.TAG_GROUP: self.group}.items()
        pages = self.fis.get_paginator("list_experiment_templates").paginate()
        for one in (one for page in pages for one in page["experimentTemplates"]):
            if wanted <= one.get("tags", {}).items():
                return str(one["id"])
        raise DrillError(
            f"group {self.group!r} of stack {self.stack!r} has no drill, allowed: after `up` with "
            "capacity.drill: 1 in its entry of the stack file"
        )

    def start(self, template: str) -> str:
        """Start an experiment and return its id."""
        tags = {names.TAG_STACK: self.stack, names.TAG_GROUP: self.group}
        return str(self.fis.start_experiment(experimentTemplateId=template, tags=tags)["experiment"]["id"])

    def state(self, experiment: str) -> ExperimentState:
        """Return how an experiment stands; one call."""
        told = self.fis.get_experiment(id=experiment)["experiment"]["state"]
        return ExperimentState(told["status"], told.get("reason", ""))
