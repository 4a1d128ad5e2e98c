"""Each rule finds what breaks it and passes what keeps it; an environment sets levels and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from policy_sentry.querying.actions import get_action_data

from policy.judge import CONFIGURED, chosen, settings_of, violations
from policy.rules import RULES
from policy.rules.access import WITHOUT_RESOURCES
from policy.rules.model import UNKNOWN, PolicyRule, Subject
from tests.policy.cases import FACTS, KEEPING, VIOLATING, Case, subject, template

ROOT = Path(__file__).resolve().parents[2]


def found(rule: PolicyRule, case: Case) -> list[str]:
    settings, subjects = case
    return [one.words for one in violations(subjects, {rule.name: settings}, FACTS) if one.rule == rule.name]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_what_breaks_it_and_passes_what_keeps_it(rule: PolicyRule) -> None:
    assert all(found(rule, case) for case in VIOLATING[rule.name])
    assert [found(rule, case) for case in KEEPING[rule.name]] == [[]] * len(KEEPING[rule.name])


def test_what_is_not_known_yet_breaks_no_rule() -> None:
    inputs: dict[str, Any] = {
        "LaunchTemplate": {
            "metadataOptions": UNKNOWN,
            "blockDeviceMappings": UNKNOWN,
            "imageId": UNKNOWN,
            "tags": UNKNOWN,
        },
        "RolePolicy": {"policy": UNKNOWN},
        "SecurityGroup": {"ingress": UNKNOWN, "tags": UNKNOWN},
        "SecurityGroupIngressRule": {"cidrIpv4": UNKNOWN},
        "Group": {
            "mixedInstancesPolicy": UNKNOWN,
            "maxSize": UNKNOWN,
            "vpcZoneIdentifiers": UNKNOWN,
            "tags": UNKNOWN,
        },
        "SpotFleetRequest": {"launchTemplateConfigs": UNKNOWN, "tags": UNKNOWN},
        "FileSystem": {"encrypted": UNKNOWN, "tags": UNKNOWN},
        "Queue": {"sqsManagedSseEnabled": UNKNOWN, "tags": UNKNOWN},
    }
    subjects = [subject(kind, protected=True, **given) for kind, given in inputs.items()]
    config = {"on-demand-ceiling": {"maximumUsdPerHour": 0.01}}
    assert not list(violations(subjects, config, FACTS))


def test_a_component_is_no_resource() -> None:
    component = Subject("gpu-spot:infra:LaunchTemplate", "any", "urn:pulumi:dev::gpu-spot::t::any", {})
    assert not list(violations([component], {}, FACTS))


def test_an_environment_sets_levels_and_bounds(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(
        json.dumps({"all": "mandatory", "image-age": {"maximumDays": 5}, "imdsv2": "disabled"})
    )
    config = settings_of("dev", tmp_path)
    rules = {rule.name: rule for rule in RULES}
    assert chosen(rules["image-age"], config) == ("mandatory", {"maximumDays": 5})
    assert chosen(rules["imdsv2"], config)[0] == "disabled"
    assert chosen(rules["image-age"], settings_of("other", tmp_path)) == ("advisory", {"maximumDays": 90})
    assert not [
        one for one in violations([template(metadataOptions=None)], config, FACTS) if one.rule == "imdsv2"
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"imds": "mandatory"}, "'imds' is no rule, allowed: all, "),
        ({"imdsv2": "forbidden"}, "imdsv2 is 'forbidden', allowed: mandatory, advisory, disabled"),
        ({"image-age": {"days": 3}}, "image-age.days, allowed: enforcementLevel, maximumDays"),
    ],
)
def test_settings_that_there_are_not_are_refused(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(given))
    with pytest.raises(ValueError, match=r"dev\.json: ") as error:
        settings_of("dev", tmp_path)
    assert told in str(error.value)


def test_the_shipped_settings_are_of_environments_that_there_are() -> None:
    for path in CONFIGURED.glob("*.json"):
        assert (ROOT / f"Pulumi.{path.stem}.yaml").is_file()
        settings_of(path.stem)


@pytest.mark.parametrize("action", sorted(WITHOUT_RESOURCES))
def test_aws_narrows_the_listed_actions_to_no_resource(action: str) -> None:
    service, name = action.split(":")
    [told] = get_action_data(service, name)[service]
    assert told["resource_arn_format"] == "*"
