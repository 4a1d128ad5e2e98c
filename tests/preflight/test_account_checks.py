"""What an account must have: roles, quotas, permissions, keys. Each check finds its cause, and only that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.checks import disks, encryption, limits
from gpu_spot.preflight.checks.account import billing, github, permissions, quotas, service_roles
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.preflight.worlds import answer, declared, error, remarks, stack, statuses

GROUP = declared("aws:autoscaling/group:Group")
FLEET = declared("aws:ec2/spotFleetRequest:SpotFleetRequest")
SPOT, ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"


def vcpus(clients: AwsClients, values: dict[str, float]) -> None:
    """Let Service Quotas know these quotas; a negative value is AWS's default, which nobody changed."""

    def value(asked: dict[str, str]) -> dict[str, Any]:
        given = values[asked["QuotaCode"]]
        if given < 0:
            return error("NoSuchResourceException")
        return {"Quota": {"QuotaName": asked["QuotaCode"], "Value": given}}

    def default(asked: dict[str, str]) -> dict[str, Any]:
        return {"Quota": {"QuotaName": asked["QuotaCode"], "Value": -values[asked["QuotaCode"]]}}

    answer(clients, "service-quotas", "GetServiceQuota", value)
    answer(clients, "service-quotas", "GetAWSDefaultServiceQuota", default)


def test_missing_service_linked_roles_are_told_with_the_command_that_makes_them(clients: AwsClients) -> None:
    found = remarks(service_roles, stack(declared=[GROUP, FLEET]), clients)
    assert statuses(found) == {
        "AWSServiceRoleForAutoScaling": "warning",
        "AWSServiceRoleForEC2Spot": "failure",
        "AWSServiceRoleForEC2SpotFleet": "failure",
    }
    assert "--aws-service-name spotfleet.amazonaws.com" in found[2].advice


def test_the_first_broker_makes_its_role(clients: AwsClients) -> None:
    found = remarks(service_roles, stack({"spotPercentage": 0}, [declared("aws:mq/broker:Broker")]), clients)
    assert statuses(found) == {"AWSServiceRoleForAmazonMQ": "warning"}
    assert "with the first broker" in found[0].found


def test_roles_that_are_there_need_nothing(clients: AwsClients) -> None:
    for role in ("AutoScaling", "EC2Spot", "EC2SpotFleet"):
        name = f"AWSServiceRoleFor{role}"
        clients("iam").create_role(RoleName=name, Path="/aws-service-role/", AssumeRolePolicyDocument="{}")
    found = remarks(service_roles, stack(declared=[GROUP, FLEET]), clients)
    assert [one.status for one in found] == ["ok", "ok", "ok"]


def test_without_spot_no_role_of_spot_is_needed(clients: AwsClients) -> None:
    found = remarks(service_roles, stack({"spotPercentage": 0}, [GROUP]), clients)
    assert [one.subject for one in found] == ["AWSServiceRoleForAutoScaling"]


# Four g6.xlarge have 16 vCPUs, eight (the default max) g5.2xlarge 64.
@pytest.mark.parametrize(("value", "status"), [(0, "failure"), (15, "failure"), (16, "warning"), (64, "ok")])
def test_a_spot_quota_is_judged_by_target_and_max(clients: AwsClients, value: float, status: str) -> None:
    vcpus(clients, {SPOT: value, ON_DEMAND: 1000})
    assert statuses(remarks(quotas, stack(), clients)) == {SPOT: status, ON_DEMAND: "ok"}


# Eight GPUs are eight g6.xlarge with 32 vCPUs, sixteen (the default max) four g6.12xlarge with 192.
@pytest.mark.parametrize(("value", "status"), [(31, "failure"), (32, "warning"), (192, "ok")])
def test_where_gpus_are_counted_a_bigger_type_needs_fewer_instances(
    clients: AwsClients, value: float, status: str
) -> None:
    vcpus(clients, {SPOT: value, ON_DEMAND: 1000})
    sizes = stack({"unit": "gpus", "target": 8, "instanceTypes": ["g6.xlarge", "g6.12xlarge"]})
    assert statuses(remarks(quotas, sizes, clients))[SPOT] == status


def test_a_fallback_needs_on_demand_for_the_whole_target(clients: AwsClients) -> None:
    vcpus(clients, {SPOT: 1000, ON_DEMAND: 15})
    assert statuses(remarks(quotas, stack(), clients))[ON_DEMAND] == "failure"
    without = stack({"fallback": {"enabled": False}})
    assert statuses(remarks(quotas, without, clients)) == {SPOT: "ok"}


def test_a_quota_that_nobody_changed_has_its_default(clients: AwsClients) -> None:
    vcpus(clients, {SPOT: -64, ON_DEMAND: -15})
    found = remarks(quotas, stack(), clients)
    assert statuses(found) == {SPOT: "ok", ON_DEMAND: "failure"}
    assert f"/quotas/{ON_DEMAND}" in found[1].advice


def test_types_of_two_quotas_stand_in_for_each_other(clients: AwsClients) -> None:
    vcpus(clients, {SPOT: 0, ON_DEMAND: 0, "L-7212CCBC": 0, "L-417A185B": 0})
    found = remarks(quotas, stack({"instanceTypes": ["g5.2xlarge", "p4d.24xlarge"]}), clients)
    assert set(statuses(found).values()) == {"warning"}


def test_groups_share_a_quota(clients: AwsClients) -> None:
    vcpus(clients, {SPOT: 31, ON_DEMAND: 1000})
    capacity = {"kind": "mixed-asg", "target": 4, "instanceTypes": ["g6.xlarge"]}
    two = stack(services=[{"name": name, "capacity": capacity} for name in ("a", "b")])
    assert statuses(remarks(quotas, two, clients))[SPOT] == "failure"


def test_the_sixth_vpc_of_a_region_is_found(clients: AwsClients) -> None:
    wanted = stack(declared=[declared("aws:ec2/vpc:Vpc")])
    answer(
        clients,
        "service-quotas",
        "GetServiceQuota",
        {"Quota": {"QuotaName": "VPCs per Region", "Value": 2.0}},
    )
    assert statuses(remarks(limits, wanted, clients)) == {"VPCs per Region": "ok"}
    made = clients("ec2").create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    [found] = remarks(limits, wanted, clients)
    assert (found.status, found.found) == ("failure", "2, 2 in use; this stack adds 1")
    clients("ec2").create_tags(Resources=[made], Tags=[{"Key": "gpu-spot:stack", "Value": "dev"}])
    [found] = remarks(limits, wanted, clients)
    assert (found.status, found.found) == ("ok", "2, 2 in use; this stack adds 0")


STORAGE, INTERFACES = "L-7A658B76", "L-DF5E4CA3"


# 300 roots of 125 GiB are 36.6 TiB; 400, the max that is given, 48.8.
@pytest.mark.parametrize(("tib", "status"), [(36, "failure"), (48, "warning"), (49, "ok")])
def test_the_storage_of_roots_is_judged_by_target_and_max(
    clients: AwsClients, tib: float, status: str
) -> None:
    vcpus(clients, {STORAGE: tib, INTERFACES: 5_000})
    many = stack({"target": 300, "max": 400})
    assert statuses(remarks(disks, many, clients)) == {STORAGE: status, INTERFACES: "ok"}


def test_a_jobs_volume_counts_beside_its_root(clients: AwsClients) -> None:
    vcpus(clients, {STORAGE: 2, INTERFACES: 5})
    wanted = stack({"target": 1, "max": 2}, training=[training.job(volumeGiB=2_000, dataset=None)])
    found = {one.subject: one for one in remarks(disks, wanted, clients)}
    assert found[STORAGE].status == "failure"  # 2,000 GiB, and two roots
    assert "need 2.197" in found[STORAGE].found
    assert found[INTERFACES].status == "ok"


def test_interfaces_end_before_ten_thousand_instances(clients: AwsClients) -> None:
    vcpus(clients, {STORAGE: 9_999, INTERFACES: 5_000})
    found = remarks(disks, stack({"target": 4_000, "max": 8_000}), clients)
    assert [one.status for one in found] == ["ok", "warning"]
    assert f"/quotas/{INTERFACES}" in found[1].advice


def test_only_gateway_endpoints_count_for_their_quota(clients: AwsClients) -> None:
    wanted = stack(
        declared=[
            declared("aws:ec2/vpcEndpoint:VpcEndpoint", vpcEndpointType=kind)
            for kind in ("Gateway", "Interface", "Interface")
        ]
    )
    answer(clients, "service-quotas", "GetServiceQuota", {"Quota": {"QuotaName": "gateways", "Value": 1.0}})
    assert statuses(remarks(limits, wanted, clients)) == {"gateways": "ok"}


def keyed(clients: AwsClients, policy: dict[str, Any] | None = None) -> str:
    key: str = clients("kms").create_key(**({"Policy": json.dumps(policy)} if policy else {}))["KeyMetadata"][
        "Arn"
    ]
    answer(clients, "ec2", "GetEbsDefaultKmsKeyId", {"KmsKeyId": key})
    return key


def test_the_key_of_aws_needs_nothing(clients: AwsClients) -> None:
    answer(clients, "ec2", "GetEbsDefaultKmsKeyId", {"KmsKeyId": "alias/aws/ebs"})
    assert statuses(remarks(encryption, stack(declared=[GROUP]), clients)) == {"alias/aws/ebs": "ok"}


def test_a_customers_key_must_know_who_launches(clients: AwsClients) -> None:
    key = keyed(clients)
    wanted = stack(declared=[GROUP, FLEET])
    assert set(statuses(remarks(encryption, wanted, clients)).values()) == {"failure"}
    role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling/AWSServiceRoleForAutoScaling"
    clients("kms").create_grant(KeyId=key, GranteePrincipal=role, Operations=["CreateGrant"])
    assert list(statuses(remarks(encryption, wanted, clients)).values()) == ["ok", "failure"]
    statement = {"Effect": "Allow", "Principal": {"AWS": role.replace("AutoScaling", "EC2SpotFleet")}}
    policy = {"Version": "2012-10-17", "Statement": [{**statement, "Action": "kms:*", "Resource": "*"}]}
    clients("kms").put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps(policy))
    assert list(statuses(remarks(encryption, wanted, clients)).values()) == ["ok", "ok"]


def test_a_key_that_is_switched_off_is_found(clients: AwsClients) -> None:
    clients("kms").disable_key(KeyId=keyed(clients).rpartition("/")[2])
    assert list(statuses(remarks(encryption, stack(declared=[GROUP]), clients)).values()) == ["failure"]


def test_a_key_that_the_template_names_comes_before_the_default(clients: AwsClients) -> None:
    named = clients("kms").create_key()["KeyMetadata"]["Arn"]
    template = declared(
        "aws:ec2/launchTemplate:LaunchTemplate",
        blockDeviceMappings=[{"deviceName": "/dev/sda1", "ebs": {"kmsKeyId": named}}],
    )
    [found] = remarks(encryption, stack(declared=[GROUP, template]), clients)
    assert (found.status, named in found.subject) == ("failure", True)


def previewed(*, create: bool) -> dict[str, Any]:
    return {"previews": {"repository": "me/mine", "createProvider": create}}


def test_githubs_provider_is_there_once(clients: AwsClients) -> None:
    assert remarks(github, stack(), clients) == []
    assert [one.status for one in remarks(github, stack(identity=previewed(create=True)), clients)] == ["ok"]
    assert [one.status for one in remarks(github, stack(identity=previewed(create=False)), clients)] == [
        "failure"
    ]
    clients("iam").create_open_id_connect_provider(
        Url="https://token.actions.githubusercontent.com", ThumbprintList=["0" * 40]
    )
    assert [one.status for one in remarks(github, stack(identity=previewed(create=True)), clients)] == [
        "warning"
    ]
    assert [one.status for one in remarks(github, stack(identity=previewed(create=False)), clients)] == ["ok"]


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ([], "warning"),
        ([{"TagKey": "gpu-spot:stack", "Type": "UserDefined", "Status": "Inactive"}], "warning"),
        ([{"TagKey": "gpu-spot:stack", "Type": "UserDefined", "Status": "Active"}], "ok"),
    ],
)
def test_the_budgets_tag_must_be_active(clients: AwsClients, tags: list[dict[str, str]], status: str) -> None:
    answer(clients, "ce", "ListCostAllocationTags", {"CostAllocationTags": tags})
    found = remarks(billing, stack(monitoring={"monthlyBudgetUsd": 100}), clients)
    assert [one.status for one in found] == [status]


def test_without_a_budget_nobody_pays_for_the_question(clients: AwsClients) -> None:
    assert remarks(billing, stack(), clients) == []  # moto would refuse the call


def simulated(clients: AwsClients, decisions: dict[str, str]) -> None:
    def results(asked: dict[str, Any]) -> dict[str, Any]:
        actions = [value for key, value in asked.items() if key.startswith("ActionNames")]
        return {
            "EvaluationResults": [
                {"EvalActionName": action, "EvalDecision": decisions.get(action, "allowed")}
                for action in actions
            ]
        }

    answer(clients, "iam", "SimulatePrincipalPolicy", results)


def test_what_the_caller_may_not_is_told_by_action(clients: AwsClients) -> None:
    wanted = stack(declared=[declared("aws:ec2/vpc:Vpc")])
    who = Account("123456789012", "arn:aws:iam::123456789012:user/me", clients)
    simulated(clients, {"ec2:CreateVpc": "explicitDeny", "ec2:CreateTags": "implicitDeny"})
    found = list(permissions.look(wanted, who))
    assert statuses(found) == {"ec2:CreateTags": "warning", "ec2:CreateVpc": "failure", who.caller: "ok"}
    assert found[-1].found == "may do 2 of 4 actions that `up` takes"


def test_of_a_session_the_role_is_asked_about(clients: AwsClients) -> None:
    clients("iam").create_role(RoleName="deploy", Path="/ci/", AssumeRolePolicyDocument="{}")
    asked = []

    def results(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body["PolicySourceArn"])
        return {"EvaluationResults": []}

    answer(clients, "iam", "SimulatePrincipalPolicy", results)
    who = Account("123456789012", "arn:aws:sts::123456789012:assumed-role/deploy/me", clients)
    list(permissions.look(stack(), who))
    assert asked == ["arn:aws:iam::123456789012:role/ci/deploy"]


def test_root_is_not_simulated(clients: AwsClients) -> None:
    who = Account("123456789012", "arn:aws:iam::123456789012:root", clients)
    assert [one.status for one in permissions.look(stack(), who)] == ["warning"]
