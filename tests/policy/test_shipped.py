"""The shipped environments comply with the mandatory policies, in the first preview and later ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infra.catalogue import on_demand_prices
from policy.evaluation import Violation, settings_of, violations
from policy.rules.model import UNKNOWN, Subject
from rehearsal.commands.deploy import violated
from tests.infra.declared import ROOT, Run, edited_stack, in_capacity, shipped
from tests.infra.test_key import KEY
from tests.policy.cases import FACTS
from tests.policy.forms import false_stops, good_forms
from tests.review.changes import STACKS


def check(preview: Run) -> list[Violation]:
    facts = replace(FACTS, price=on_demand_prices.price)
    return list(violations(subjects_of(preview), settings_of(preview.stack), facts))


def subjects_of(preview: Run) -> list[Subject]:
    return [
        Subject(
            one["type"],
            one["name"],
            f"urn:pulumi:{preview.stack}::gpu-spot::{one['type']}::{one['name']}",
            json.loads(json.dumps(one["inputs"]), object_hook=dict),
            bool(one["protect"]),
            "us-west-2",
        )
        for one in preview.declared
    ]


SHIPPED = sorted(path.name.split(".")[1] for path in (ROOT / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize(
    ("stack", "mode"), [*((stack, "known") for stack in SHIPPED), ("prod", "unknown"), ("ocr", "unknown")]
)
def test_a_shipped_environment_complies_with_all_mandatory_policies(stack: str, mode: str) -> None:
    found = check(shipped(stack, mode))
    assert not [one for one in found if one.level == "mandatory"]
    if stack == "prod":
        assert not found


def test_an_environment_with_a_key_of_its_own_complies() -> None:
    declared = edited_stack({"kmsKeyArn": KEY}, "prod")
    assert declared.of("Key") == {}
    assert KEY in json.dumps(declared.of("RolePolicy"))
    assert not [one for one in check(declared) if one.level == "mandatory"]


@pytest.mark.parametrize(
    ("stack", "chosen"),
    [
        *(("prod", slice(10, None, 14)), ("eks", slice(0, None, 18))),
        *(pytest.param(stack, slice(None), marks=pytest.mark.soak) for stack in STACKS),
    ],
)
def test_no_policy_stops_a_stack_file_with_two_options(stack: str, chosen: slice) -> None:
    forms = good_forms(stack)[chosen]
    stopped = {form.title: false_stops(stack, check(edited_stack(form.apply, stack))) for form in forms}
    assert stopped == {form.title: [] for form in forms}


@pytest.mark.parametrize(
    ("fleet_type", "on_demand"),
    [
        ("maintain", 9),  # a base of 2 and half of the other 14 of at most 16
        ("request", 5),  # a base of 2 and half of the other 6 of 8
    ],
)
def test_the_on_demand_share_of_a_declared_fleet_is_counted(fleet_type: str, on_demand: int) -> None:
    capacity = {"fleetType": fleet_type, "max": 16, "onDemandBase": 2, "spotPercentage": 50}
    capacity |= {"instanceTypes": ["g6.xlarge", "g5.xlarge"], "fallback": {"enabled": False}}
    declared = subjects_of(edited_stack(in_capacity(**capacity), "fleet"))

    def reported(maximum: float) -> list[str]:
        settings = {"on-demand-ceiling": {"maximumUsdPerHour": maximum}}
        found = violations(declared, settings, FACTS)
        return [one.message for one in found if one.rule == "on-demand-ceiling"]

    cost = on_demand * 1.006
    [message] = reported(cost - 0.01)
    assert message.startswith(f"On-Demand may cost {cost:.2f} USD per hour, more than ")
    assert message.endswith("; lower the groups' max, or raise maximumUsdPerHour")
    assert reported(cost + 0.01) == []


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
