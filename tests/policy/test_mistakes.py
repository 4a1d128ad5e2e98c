"""The pack stops every planted mistake, in each of its forms, by a mandatory rule."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError
from policy_sentry.querying.actions import get_action_data

from policy.evaluation import CONFIG_DIRECTORY, effective_settings, settings_of, violations
from policy.external_facts import read
from policy.rules import RULES
from policy.rules.access import WITHOUT_RESOURCES
from policy.rules.model import UNKNOWN, PolicyRule, Subject
from tests.policy.cases import COMPLIANT, FACTS, FOREIGN, OWN, VIOLATING, Case, group, subject, template
from tests.policy.mistakes import CONFIG, MISTAKES


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_stopped_in_all_its_forms(mistake: str) -> None:
    forms = MISTAKES[mistake]
    assert len(forms) >= 10
    missed = []
    for rule, program in forms:
        reported = [v for v in violations(program, CONFIG, FACTS) if v.level == "mandatory"]
        if rule not in {violation.rule for violation in reported}:
            missed.append((rule, program))
    assert missed == []


ROOT = Path(__file__).resolve().parents[2]


def messages(rule: PolicyRule, case: Case) -> list[str]:
    settings, subjects = case
    return [v.message for v in violations(subjects, {rule.name: settings}, FACTS) if v.rule == rule.name]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_reports_violations_and_passes_compliant_resources(rule: PolicyRule) -> None:
    assert all(messages(rule, case) for case in VIOLATING[rule.name])
    assert [messages(rule, case) for case in COMPLIANT[rule.name]] == [[]] * len(COMPLIANT[rule.name])


def test_unknown_values_violate_no_rule() -> None:
    inputs = {
        "LaunchTemplate": ("metadataOptions", "blockDeviceMappings", "imageId", "tags"),
        "RolePolicy": ("policy",),
        "SecurityGroup": ("ingress", "tags"),
        "SecurityGroupIngressRule": ("cidrIpv4",),
        "Group": ("mixedInstancesPolicy", "maxSize", "vpcZoneIdentifiers", "tags"),
        "SpotFleetRequest": ("launchTemplateConfigs", "onDemandTargetCapacity", "tags"),
        "Parameter": ("insecureValue", "tags"),
        "FileSystem": ("encrypted", "tags"),
        "Queue": ("sqsManagedSseEnabled", "tags"),
    }
    subjects = [
        subject(kind, protected=True, **dict.fromkeys(keys, UNKNOWN)) for kind, keys in inputs.items()
    ]
    config = {"on-demand-ceiling": {"maximumUsdPerHour": 0.01}}
    assert not list(violations(subjects, config, FACTS))


def test_components_are_not_checked() -> None:
    component = Subject("gpu-spot:infra:LaunchTemplate", "any", "urn:pulumi:dev::gpu-spot::t::any", {})
    assert not list(violations([component], {}, FACTS))


def test_an_environment_sets_levels_and_limits(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(
        json.dumps({"all": "mandatory", "image-age": {"maximumDays": 5}, "imdsv2": "disabled"})
    )
    config = settings_of("dev", tmp_path)
    rules = {rule.name: rule for rule in RULES}
    assert effective_settings(rules["image-age"], config) == ("mandatory", {"maximumDays": 5})
    assert effective_settings(rules["imdsv2"], config)[0] == "disabled"
    of_all = {"all": {"enforcementLevel": "advisory"}}  # the engine takes an object, too
    assert effective_settings(rules["imdsv2"], of_all)[0] == "advisory"
    defaults = settings_of("other", tmp_path)
    assert effective_settings(rules["image-age"], defaults) == ("advisory", {"maximumDays": 90})
    assert not [v for v in violations([template(metadataOptions=None)], config, FACTS) if v.rule == "imdsv2"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"imds": "mandatory"}, "'imds' is not a rule; use all, or one of "),
        ({"imdsv2": "forbidden"}, "imdsv2 must be mandatory, advisory or disabled, not 'forbidden'"),
        (
            {"image-age": {"days": 3}},
            "image-age has no setting 'days'; its settings are enforcementLevel, maximumDays",
        ),
        ({"all": 3}, "all must be mandatory, advisory or disabled, not 3"),
        (["imdsv2"], "dev.json must be a JSON object of settings by rule: "),
    ],
)
def test_unknown_settings_are_rejected(config: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"dev\.json") as error:
        settings_of("dev", tmp_path)
    assert message in str(error.value)


def test_the_shipped_settings_belong_to_existing_environments() -> None:
    for path in CONFIG_DIRECTORY.glob("*.json"):
        assert (ROOT / "stacks" / f"Pulumi.{path.stem}.yaml").is_file()
        settings_of(path.stem)


SERVICES = (
    *("autoscaling", "cloudwatch", "dynamodb", "ec2", "ecr", "eks", "elasticfilesystem", "iam", "kms"),
    *(
        "lambda",
        "logs",
        "pricing",
        "s3",
        "secretsmanager",
        "sns",
        "sqs",
        "ssm",
        "ssmmessages",
        "sts",
        "tag",
        "xray",
    ),
)


def without_resources() -> dict[str, list[str]]:
    """The actions of the reference whose only resource is ``*``; of the services in use."""
    actions = {
        service: {
            row["action"].partition(":")[2]: {
                other["resource_arn_format"] for other in rows if other["action"] == row["action"]
            }
            for row in rows
        }
        for service in SERVICES
        for rows in [get_action_data(service, "*")[service]]
    }
    return {
        service: sorted(action for action, arns in by_action.items() if arns == {"*"})
        for service, by_action in actions.items()
    }


def test_every_service_that_the_program_names_is_listed() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "infra").rglob("*.py"))
    named = {service for text in sources for service in re.findall(r'"([a-z0-9-]+):[A-Z][A-Za-z]+"', text)}
    assert "sqs" in named
    assert named - {"aws"} <= {*SERVICES}


def test_the_listed_actions_are_those_without_resource_level_permissions() -> None:
    listed = {f"{service}:{action}" for service, names in without_resources().items() for action in names}
    assert listed == WITHOUT_RESOURCES


def test_the_own_account_is_that_of_the_credentials() -> None:
    def calls(account: str | None) -> Any:
        def get_caller_identity() -> dict[str, str]:
            if account is None:
                raise NoCredentialsError
            return {"Account": account}

        return lambda name, **_: SimpleNamespace(get_caller_identity=get_caller_identity)

    def found(account: str | None) -> list[str]:
        facts = read(now=FACTS.now, client=calls(account))
        shared = [subject("AmiLaunchPermission", accountId=OWN)]
        return [one.message for one in violations(shared, {}, facts) if one.rule == "foreign-accounts"]

    assert found(OWN) == []
    remedy = "list it in accounts if it is trusted"
    assert found(FOREIGN) == [f"accountId names {OWN}, which is not the stack's own ({FOREIGN}); {remedy}"]
    assert found(None) == [
        f"accountId names {OWN}, which is not known to be the stack's own (no credentials); {remedy}"
    ]


def test_an_unknown_price_is_a_violation_that_names_type_region_and_command() -> None:
    config = {"on-demand-ceiling": {"maximumUsdPerHour": 999.0}}
    fallback = group(types=4, spot=False)
    [found] = [one for one in violations([fallback], config, FACTS) if one.rule == "on-demand-ceiling"]
    assert found.resource == fallback.name
    assert found.message == (
        "g6.2xlarge, g6.7xlarge in us-west-2: On-Demand price unknown, so the cost per hour cannot be "
        "checked (make prices)"
    )


def test_an_environment_in_a_region_without_prices_needs_an_update() -> None:
    facts = read(now=FACTS.now)
    config = {"on-demand-ceiling": {"maximumUsdPerHour": 999.0}}

    def found(region: str) -> list[str]:
        reported = violations([replace(group(spot=False), region=region)], config, facts)
        return [one.message for one in reported if one.rule == "on-demand-ceiling"]

    assert found("eu-north-1") == []
    [message] = found("ap-east-2")
    assert message.startswith("g5.xlarge, g6.xlarge in ap-east-2: ")
