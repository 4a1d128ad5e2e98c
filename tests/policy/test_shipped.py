"""The environments that ship keep the mandatory policies, on their first preview and after."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.judge import Violation, settings_of, violations
from policy.rules.model import UNKNOWN, Subject
from rehearsal.commands.deploy import violated
from tests.infra.declared import Run, shipped
from tests.policy.cases import FACTS


def judged(run: Run) -> list[Violation]:
    subjects = [
        Subject(
            one["type"],
            one["name"],
            f"urn:pulumi:{run.stack}::gpu-spot::{one['type']}::{one['name']}",
            json.loads(json.dumps(one["inputs"]), object_hook=dict),
            bool(one["protect"]),
            "us-west-2",
        )
        for one in run.declared
    ]
    return list(violations(subjects, settings_of(run.stack), FACTS))


@pytest.mark.parametrize(("stack", "mode"), [("prod", "unknown"), ("ocr", "known")])
def test_a_shipped_environment_keeps_every_mandatory_policy(stack: str, mode: str) -> None:
    found = judged(shipped(stack, mode))
    assert not [one for one in found if one.level == "mandatory"]
    if stack == "prod":
        assert not found


def test_the_programs_unknowns_are_the_rules() -> None:
    assert any(UNKNOWN in str(one["inputs"]) for one in shipped("prod", "unknown").declared)


def test_a_local_deployment_is_held_to_them_too() -> None:
    class Deployed:
        stack, region = "prod", "us-west-2"
        resources: tuple[Any, ...] = ()

    one = type("One", (), {})()
    one.type, one.name, one.urn = (
        "aws:sqs/queue:Queue",
        "gpu-spot-prod-open",
        "urn:pulumi:prod::gpu-spot::t::n",
    )
    one.inputs, one.protect = {"tags": {"gpu-spot:stack": "prod", "environment": "x"}}, False
    Deployed.resources = (one,)
    [found] = violated(Deployed())  # type: ignore[arg-type]
    assert (found.rule, found.level, found.resource) == ("encrypted", "mandatory", "gpu-spot-prod-open")
