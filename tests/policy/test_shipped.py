"""The shipped environments comply with the mandatory policies, in the first preview and later ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.evaluation import Violation, settings_of, violations
from policy.rules.model import UNKNOWN, Subject
from rehearsal.commands.deploy import violated
from tests.infra.declared import Run, shipped
from tests.policy.cases import FACTS


def check(run: Run) -> list[Violation]:
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
def test_a_shipped_environment_complies_with_all_mandatory_policies(stack: str, mode: str) -> None:
    found = check(shipped(stack, mode))
    assert not [one for one in found if one.level == "mandatory"]
    if stack == "prod":
        assert not found


def test_a_preview_has_unknown_values() -> None:
    assert any(UNKNOWN in str(one["inputs"]) for one in shipped("prod", "unknown").declared)


def test_a_local_deployment_is_checked_too() -> None:
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
