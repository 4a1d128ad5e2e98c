"""AWS FIS experiments of a drill: finds the declared template, starts it, reads its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contracts import names

ENDED: Final = ("completed", "stopped", "failed", "cancelled")
"""Final states of an experiment (FIS API reference, ``ExperimentState``)."""


class DrillError(ValueError):
    """A drill cannot be started, or interrupted no instance; one line with the reason."""


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """The status of an experiment, as FIS reports it."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DrillExperiments:
    """The experiments of one group of a stack."""

    fis: Any
    stack: str
    group: str

    def template(self) -> str:
        """Return the id of the group's experiment template.

        Calls: one for each hundred templates of the region. Raises ``DrillError`` if the group has none.
        """
        tags = {names.TAG_STACK: self.stack, names.TAG_GROUP: self.group}.items()
        pages = self.fis.get_paginator("list_experiment_templates").paginate()
        for template in (template for page in pages for template in page["experimentTemplates"]):
            if tags <= template.get("tags", {}).items():
                return str(template["id"])
        raise DrillError(
            f"group {self.group!r} of stack {self.stack!r} has no drill; set capacity.drill in the stack "
            "file and deploy"
        )

    def start(self, template: str) -> str:
        """Start an experiment and return its id."""
        tags = {names.TAG_STACK: self.stack, names.TAG_GROUP: self.group}
        return str(self.fis.start_experiment(experimentTemplateId=template, tags=tags)["experiment"]["id"])

    def state(self, experiment: str) -> ExperimentState:
        """Return the state of an experiment; one call."""
        response = self.fis.get_experiment(id=experiment)["experiment"]["state"]
        return ExperimentState(response["status"], response.get("reason", ""))
