"""Checks of an account: roles, quotas, permissions, keys. Each check reports its problem and no other."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from contracts.agent import names, version
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.checks import (
    agents,
    encryption,
    images,
    offerings,
    permissions,
    quotas,
    vcpus,
    volumes,
)
from gpu_spot.preflight.stack import Stack
from infra.catalogue import accelerators as catalogue
from pulumi_on_moto import AwsClients
from tests.forecast.conftest import job, pods, settings_of
from tests.infra import training
from tests.models import create_table
from tests.preflight.test_stack_checks import TEMPLATE, image
from tests.preflight.worlds import (
    REGION,
    declared,
    on_kubernetes,
    results_of,
    service,
    stack,
    statuses,
    stub_operation,
    stub_quotas,
)

GROUP = declared("aws:autoscaling/group:Group")
FLEET = declared("aws:ec2/spotFleetRequest:SpotFleetRequest")
SPOT, ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"


def test_missing_service_linked_roles_are_reported_with_the_command_that_creates_them(
    clients: AwsClients,
) -> None:
    found = results_of(permissions.service_roles, stack(declared=[GROUP, FLEET]), clients)
    assert statuses(found) == {
        "AWSServiceRoleForAutoScaling": "warning",
        "AWSServiceRoleForEC2Spot": "failure",
        "AWSServiceRoleForEC2SpotFleet": "failure",
    }
    assert "--aws-service-name spotfleet.amazonaws.com" in found[2].advice


@pytest.mark.parametrize(
    ("kind", "role", "first"),
    [
        ("mq/broker:Broker", "AmazonMQ", "broker"),
        ("fis/experimentTemplate:ExperimentTemplate", "FIS", "experiment"),
        ("efs/fileSystem:FileSystem", "AmazonElasticFileSystem", "file system"),
        ("eks/cluster:Cluster", "AmazonEKS", "cluster"),
        ("eks/nodeGroup:NodeGroup", "AmazonEKSNodegroup", "node group"),
    ],
)
def test_the_first_resource_of_a_service_makes_its_role(
    clients: AwsClients, kind: str, role: str, first: str
) -> None:
    without_spot = stack({"spotPercentage": 0}, [declared(f"aws:{kind}")])
    [found] = results_of(permissions.service_roles, without_spot, clients)
    assert (found.subject, found.status) == (f"AWSServiceRoleFor{role}", "warning")
    assert found.advice == f"allow iam:CreateServiceLinkedRole for who creates the {first}"


def test_existing_roles_are_ok(clients: AwsClients) -> None:
    for role in ("AutoScaling", "EC2Spot", "EC2SpotFleet"):
        name = f"AWSServiceRoleFor{role}"
        clients("iam").create_role(RoleName=name, Path="/aws-service-role/", AssumeRolePolicyDocument="{}")
    found = results_of(permissions.service_roles, stack(declared=[GROUP, FLEET]), clients)
    assert [one.status for one in found] == ["ok", "ok", "ok"]


def test_without_spot_no_role_of_spot_is_needed(clients: AwsClients) -> None:
    found = results_of(permissions.service_roles, stack({"spotPercentage": 0}, [GROUP]), clients)
    assert [one.subject for one in found] == ["AWSServiceRoleForAutoScaling"]


# Four g6.xlarge have 16 vCPUs, eight (the default max) g5.2xlarge 64.
@pytest.mark.parametrize(("value", "status"), [(0, "failure"), (15, "failure"), (16, "warning"), (64, "ok")])
def test_a_spot_quota_is_compared_at_target_and_max(clients: AwsClients, value: float, status: str) -> None:
    stub_quotas(clients, {SPOT: value, ON_DEMAND: 1000})
    assert statuses(results_of(vcpus.run, stack(), clients)) == {SPOT: status, ON_DEMAND: "ok"}


# Eight GPUs are eight g6.xlarge with 32 vCPUs, sixteen (the default max) four g6.12xlarge with 192.
@pytest.mark.parametrize(("value", "status"), [(31, "failure"), (32, "warning"), (192, "ok")])
def test_where_gpus_are_counted_a_bigger_type_needs_fewer_instances(
    clients: AwsClients, value: float, status: str
) -> None:
    stub_quotas(clients, {SPOT: value, ON_DEMAND: 1000})
    sizes = stack({"unit": "gpus", "target": 8, "instanceTypes": ["g6.xlarge", "g6.12xlarge"]})
    assert statuses(results_of(vcpus.run, sizes, clients))[SPOT] == status


def test_a_fallback_needs_on_demand_for_the_whole_target(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 1000, ON_DEMAND: 15})
    assert statuses(results_of(vcpus.run, stack(), clients))[ON_DEMAND] == "failure"
    without = stack({"fallback": {"enabled": False}})
    assert statuses(results_of(vcpus.run, without, clients)) == {SPOT: "ok"}


def test_an_unchanged_quota_has_its_default(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: -64, ON_DEMAND: -15})
    found = results_of(vcpus.run, stack(), clients)
    assert statuses(found) == {SPOT: "ok", ON_DEMAND: "failure"}
    assert f"/quotas/{ON_DEMAND}" in found[1].advice


def test_types_of_two_quotas_replace_each_other(clients: AwsClients) -> None:
    of_two = stack({"instanceTypes": ["g5.2xlarge", "p4d.24xlarge"]})
    stub_quotas(clients, {SPOT: 8, ON_DEMAND: 0, "L-7212CCBC": 0, "L-417A185B": 0})
    assert set(statuses(results_of(vcpus.run, of_two, clients)).values()) == {"warning"}
    # As in a new account: none of them can start.
    stub_quotas(clients, {SPOT: 7, ON_DEMAND: 0, "L-7212CCBC": 95, "L-417A185B": 0})
    *quotas_of_types, none = results_of(vcpus.run, of_two, clients)
    assert {one.status for one in quotas_of_types} == {"warning"}
    assert (none.subject, none.status, none.key) == ("web", "failure", "services[0].capacity.instanceTypes")


# From Service Quotas' list of EC2: "All … Spot Instance Requests" and "Running On-Demand … instances".
CODES_OF_FAMILIES = {
    "g": {"L-3819A6DF", "L-DB2E81BA"},
    "gr": {"L-3819A6DF", "L-DB2E81BA"},
    "p": {"L-7212CCBC", "L-C4BD4855", "L-417A185B"},
    "trn": {"L-6B0D517C", "L-2C3B7624"},
    "inf": {"L-B5D1601B", "L-1945791B"},
    "dl": {"L-85EED4F7", "L-6E869C2A"},
    "vt": {"L-3819A6DF", "L-DB2E81BA"},
    "f": {"L-88CF9481", "L-74FC7D96"},
    "m": {"L-34B43A08", "L-1216C47A"},
}


@pytest.mark.parametrize(
    "name", [*catalogue.CATALOGUE, "inf2.xlarge", "dl1.24xlarge", "vt1.3xlarge", "m7g.large"]
)
def test_each_type_has_the_quotas_of_its_family(name: str) -> None:
    family = re.match("[a-z]+", name)
    codes = vcpus.codes(name)
    assert family is not None
    assert codes is not None
    assert {*codes[0], codes[1]} <= CODES_OF_FAMILIES[family[0]]


def test_a_type_of_an_unknown_family_is_not_known(clients: AwsClients) -> None:
    sizes = {"InstanceTypes": [{"InstanceType": "q9.large", "VCpuInfo": {"DefaultVCpus": 8}}]}
    stub_operation(clients, "ec2", "DescribeInstanceTypes", sizes)
    assert statuses(results_of(vcpus.run, stack(), clients)) == {"q9.large": "not known"}


def test_pods_and_system_nodes_need_quota_too(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 15, ON_DEMAND: 1000, STANDARD: 5})
    nodes = declared(
        "aws:eks/nodeGroup:NodeGroup", instanceTypes=["m7g.large"], scalingConfig={"desiredSize": 3}
    )
    found = results_of(vcpus.run, on_kubernetes([nodes]), clients)
    assert statuses(found) == {SPOT: "failure", ON_DEMAND: "ok", STANDARD: "failure"}
    assert "targets need 6" in found[-1].finding


def test_every_node_of_a_job_on_kubernetes_needs_quota(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 15, ON_DEMAND: 1000, STORAGE: 0.4, INTERFACES: 5_000})
    four = Stack.of("dev", settings_of([], [pods(job(), nodes=4)]), ())
    assert statuses(results_of(vcpus.run, four, clients))[SPOT] == "failure"  # four g6.xlarge have 16 vCPUs
    assert statuses(results_of(quotas.run, four, clients))[STORAGE] == "failure"


def test_groups_share_a_quota(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 31, ON_DEMAND: 1000})
    two = stack(services=[service({"instanceTypes": ["g6.xlarge"]}, name=name) for name in ("a", "b")])
    assert statuses(results_of(vcpus.run, two, clients))[SPOT] == "failure"


STORAGE, INTERFACES = "L-7A658B76", "L-DF5E4CA3"


# 300 roots of 125 GiB are 36.6 TiB; 400, the max that is given, 48.8.
@pytest.mark.parametrize(("tib", "status"), [(36, "failure"), (48, "warning"), (49, "ok")])
def test_root_storage_is_compared_at_target_and_max(clients: AwsClients, tib: float, status: str) -> None:
    stub_quotas(clients, {STORAGE: tib, INTERFACES: 5_000})
    many = stack({"target": 300, "max": 400})
    assert statuses(results_of(quotas.run, many, clients)) == {STORAGE: status, INTERFACES: "ok"}


def test_a_jobs_volume_counts_in_addition_to_its_root(clients: AwsClients) -> None:
    stub_quotas(clients, {STORAGE: 2, INTERFACES: 5})
    wanted = stack({"target": 1, "max": 2}, training=[training.job(volumeGiB=2_000, dataset=None)])
    found = {one.subject: one for one in results_of(quotas.run, wanted, clients)}
    assert found[STORAGE].status == "failure"  # 2,000 GiB, and two roots
    assert "need 2.197" in found[STORAGE].finding
    assert found[INTERFACES].status == "ok"


def test_the_interface_quota_limits_large_groups(clients: AwsClients) -> None:
    stub_quotas(clients, {STORAGE: 9_999, INTERFACES: 5_000})
    found = results_of(quotas.run, stack({"target": 4_000, "max": 8_000}), clients)
    assert [one.status for one in found] == ["ok", "warning"]
    assert f"/quotas/{INTERFACES}" in found[1].advice


def keyed(clients: AwsClients) -> str:
    key: str = clients("kms").create_key()["KeyMetadata"]["Arn"]
    stub_operation(clients, "ec2", "GetEbsDefaultKmsKeyId", {"KmsKeyId": key})
    return key


def test_the_aws_managed_key_is_ok(clients: AwsClients) -> None:
    stub_operation(clients, "ec2", "GetEbsDefaultKmsKeyId", {"KmsKeyId": "alias/aws/ebs"})
    assert statuses(results_of(encryption.run, stack(declared=[GROUP]), clients)) == {"alias/aws/ebs": "ok"}


def test_a_customer_managed_key_must_allow_the_launching_roles(clients: AwsClients) -> None:
    key = keyed(clients)
    wanted = stack(declared=[GROUP, FLEET])
    assert set(statuses(results_of(encryption.run, wanted, clients)).values()) == {"failure"}
    role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling/AWSServiceRoleForAutoScaling"
    clients("kms").create_grant(KeyId=key, GranteePrincipal=role, Operations=["CreateGrant"])
    assert list(statuses(results_of(encryption.run, wanted, clients)).values()) == ["ok", "failure"]
    statement = {"Effect": "Allow", "Principal": {"AWS": role.replace("AutoScaling", "EC2SpotFleet")}}
    policy = {"Version": "2012-10-17", "Statement": [{**statement, "Action": "kms:*", "Resource": "*"}]}
    clients("kms").put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps(policy))
    assert list(statuses(results_of(encryption.run, wanted, clients)).values()) == ["ok", "ok"]


def test_a_disabled_key_is_a_failure(clients: AwsClients) -> None:
    clients("kms").disable_key(KeyId=keyed(clients).rpartition("/")[2])
    [found] = results_of(encryption.run, stack(declared=[GROUP]), clients)
    assert found.status == "failure"


def test_a_key_that_the_template_names_comes_before_the_default(clients: AwsClients) -> None:
    named = clients("kms").create_key()["KeyMetadata"]["Arn"]
    template = declared(
        "aws:ec2/launchTemplate:LaunchTemplate",
        blockDeviceMappings=[{"deviceName": "/dev/sda1", "ebs": {"kmsKeyId": named}}],
    )
    [found] = results_of(encryption.run, stack(declared=[GROUP, template]), clients)
    assert (found.status, named in found.subject) == ("failure", True)


def stub_simulation(clients: AwsClients, decisions: dict[str, str]) -> None:
    def results(asked: dict[str, Any]) -> dict[str, Any]:
        actions = [value for key, value in asked.items() if key.startswith("ActionNames")]
        decided = {action: decisions.get(action, "allowed") for action in actions}
        return {"EvaluationResults": [{"EvalActionName": a, "EvalDecision": d} for a, d in decided.items()]}

    stub_operation(clients, "iam", "SimulatePrincipalPolicy", results)


def test_denied_actions_are_reported(clients: AwsClients) -> None:
    wanted = stack(declared=[declared("aws:ec2/vpc:Vpc")])
    caller = Account("123456789012", "arn:aws:iam::123456789012:user/me", clients)
    stub_simulation(clients, {"ec2:CreateVpc": "explicitDeny", "ec2:CreateTags": "implicitDeny"})
    found = list(permissions.run(wanted, caller))
    assert statuses(found) == {"ec2:CreateTags": "warning", "ec2:CreateVpc": "failure", caller.caller: "ok"}
    assert found[-1].finding == "2 of 4 actions of `up` are allowed"


def test_for_a_session_its_role_is_simulated(clients: AwsClients) -> None:
    clients("iam").create_role(RoleName="deploy", Path="/ci/", AssumeRolePolicyDocument="{}")
    asked = []

    def results(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body["PolicySourceArn"])
        return {"EvaluationResults": []}

    stub_operation(clients, "iam", "SimulatePrincipalPolicy", results)
    caller = Account("123456789012", "arn:aws:sts::123456789012:assumed-role/deploy/me", clients)
    list(permissions.run(stack(), caller))
    assert asked == ["arn:aws:iam::123456789012:role/ci/deploy"]


def test_root_is_not_simulated(clients: AwsClients) -> None:
    caller = Account("123456789012", "arn:aws:iam::123456789012:root", clients)
    assert [one.status for one in permissions.run(stack(), caller)] == ["warning"]


STANDARD_SPOT, STANDARD = "L-34B43A08", "L-1216C47A"
ATLAS = {"name": "atlas", "version": "1", "command": ["true"], "instanceType": "m5.xlarge"}


def preparing(**changes: object) -> Stack:
    prepare = {**ATLAS, "name": "imagenet", "command": ["python3", "p.py"], **changes}
    capacity = {**training.job()["capacity"], "ami": "/own/image"}
    job = training.job(capacity=capacity, prepare=prepare)
    return stack(services=[], training=[job], declared=[TEMPLATE])


def test_its_vcpus_count_against_the_quotas_of_standard_types(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 1000, ON_DEMAND: 1000, STANDARD_SPOT: 3, STANDARD: 8})
    found = statuses(results_of(vcpus.run, preparing(), clients))
    # An m5.xlarge has 4 vCPUs, and two of them may be up for a moment.
    assert (found[STANDARD_SPOT], found[STANDARD]) == ("failure", "ok")


def test_its_type_must_be_sold_there(clients: AwsClients) -> None:
    assert statuses(results_of(offerings.run, preparing(), clients))["imagenet-data"] == "ok"
    unknown = statuses(results_of(offerings.run, preparing(instanceType="m99i.large"), clients))
    assert unknown["imagenet-data"] == "failure"


def test_its_image_and_command_are_checked(clients: AwsClients) -> None:
    image(clients)
    found = results_of(images.run, preparing(command=["python", "p.py"]), clients)
    assert {one.subject: one.status for one in found if one.subject.startswith("imagenet")} == {
        "imagenet-data: /own/image": "failure"
    }
    assert any("no python" in one.finding for one in found if one.subject.startswith("imagenet"))


FILES = {"fileSystem": {"accessPoints": [{"name": "files", "path": "/files"}]}}


def volume(clients: AwsClients, **tags: str) -> str:
    labels = [{"Key": key.replace("__", ":"), "Value": value} for key, value in tags.items()]
    response = clients("ec2").create_volume(
        AvailabilityZone=f"{REGION}a", Size=20, TagSpecifications=[{"ResourceType": "volume", "Tags": labels}]
    )
    return str(response["VolumeId"])


def test_a_volume_without_a_job_fails_a_job_without_a_volume(clients: AwsClients) -> None:
    with_job = stack(training=[training.job(), training.job(name="vit")])
    assert not results_of(volumes.run, with_job, clients)
    earlier = volume(clients, Name=names.VOLUME_NAME)
    [result] = results_of(volumes.run, with_job, clients)
    assert (result.subject, result.status) == (earlier, "failure")
    assert result.finding.startswith(
        f"{earlier} (20 GiB, in {REGION}a, available) belongs to no job, and resnet, vit"
    )
    assert result.advice == f"gpu-spot jobs adopt-volume resnet {earlier} --stack dev, or --blank for the id"
    volume(clients, **names.job_tags("dev", "resnet"))
    [result] = results_of(volumes.run, with_job, clients)
    assert "and vit has no volume" in result.finding
    volume(clients, **names.job_tags("dev", "vit"))
    assert not results_of(volumes.run, with_job, clients)


@pytest.mark.parametrize(
    "tags",
    [
        {"Name": "my-data"},
        {"Name": names.VOLUME_NAME, "gpu-spot__state": names.STATE_UNUSED},
        {"Name": names.VOLUME_NAME, "gpu-spot__job": "vit", "gpu-spot__stack": "prod"},
    ],
)
def test_other_volumes_are_no_question(clients: AwsClients, tags: dict[str, str]) -> None:
    volume(clients, **tags)
    assert not results_of(volumes.run, stack(training=[training.job()]), clients)


@pytest.mark.parametrize(
    "changes",
    [{"prepare": ATLAS}, {"checkpoints": "files"}, {"volumeGiB": 0, "checkpoints": "files", "dataset": None}],
)
def test_a_job_that_the_agent_does_not_ask_for_is_not_checked(
    clients: AwsClients, changes: dict[str, Any]
) -> None:
    volume(clients, Name=names.VOLUME_NAME)
    assert not results_of(volumes.run, stack(training=[training.job(**changes)], storage=FILES), clients)


def test_a_snapshot_counts_where_no_volume_is_left(clients: AwsClients) -> None:
    source = volume(clients, Name="my-data")
    tags = [{"Key": "Name", "Value": names.SNAPSHOT_NAME}]
    left = clients("ec2").create_snapshot(
        VolumeId=source, TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}]
    )["SnapshotId"]
    with_job = stack(training=[training.job()])
    assert [result.subject for result in results_of(volumes.run, with_job, clients)] == [left]
    earlier = volume(clients, Name=names.VOLUME_NAME)
    assert [result.subject for result in results_of(volumes.run, with_job, clients)] == [earlier]


def test_agents_two_minor_versions_behind_are_refused(
    clients: AwsClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not results_of(agents.run, stack(), clients)
    dynamodb = clients("dynamodb")
    create_table(dynamodb, "gpu-spot-dev-registry-0123abc", "group", "worker")
    for number, (agent, age) in enumerate(
        [("0.1.0", 5), ("0.1.7", 5), ("0.2.0", 5), ("", 5), ("0.0.1", 500)]
    ):
        then = time.time() - age
        row = Worker(f"web#{number}", f"i-{number}", 0, then, then, agent_version=agent)
        dynamodb.put_item(TableName="gpu-spot-dev-registry-0123abc", Item=registry_item.dump(row))
    for ours, refused in (("0.2.0", []), ("0.3.0", ["0.1.0", "0.1.7"])):
        monkeypatch.setattr(version, "VERSION", ours)
        found = results_of(agents.run, stack(), clients)
        assert [(one.subject, one.status, one.finding) for one in found] == [
            ("web", "failure", f"agent {agent} on 1 of its workers; {ours} serves it no more")
            for agent in refused
        ]
