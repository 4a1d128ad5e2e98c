"""The shipped environments comply with the mandatory policies, in the first preview and later ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.evaluation import Violation, settings_of, violations
from policy.rules.model import UNKNOWN, Subject
from rehearsal.commands.deploy import violated
from tests.infra.declared import ROOT, Run, run, shipped, variant
from tests.infra.test_key import KEY
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


SHIPPED = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))


@pytest.mark.parametrize(
    ("stack", "mode"), [*((stack, "known") for stack in SHIPPED), ("prod", "unknown"), ("ocr", "unknown")]
)
def test_a_shipped_environment_complies_with_all_mandatory_policies(stack: str, mode: str) -> None:
    found = check(shipped(stack, mode))
    assert not [one for one in found if one.level == "mandatory"]
    if stack == "prod":
        assert not found


def test_an_environment_with_a_key_of_its_own_complies(tmp_path: Path) -> None:
    def with_key(config: dict[str, Any]) -> None:
        config["gpu-spot:kmsKeyArn"] = KEY

    declared = run("known", variant(tmp_path, with_key, ROOT / "Pulumi.prod.yaml"), "prod")
    assert declared.of("Key") == {}
    assert KEY in json.dumps(declared.of("RolePolicy"))
    assert not [one for one in check(declared) if one.level == "mandatory"]


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
