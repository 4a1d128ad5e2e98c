"""A stack with entries on instances and on Kubernetes: resources, outputs, roles of pods, second update."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest

from contracts import names, watched_queue
from gpu_spot.declared.stackfile import StackConfig
from infra.schema import Kubernetes
from pulumi_on_moto import changes, deploy, sandbox
from pulumi_on_moto.cluster.api import ApiServer
from tests import iam
from tests.apart import apart
from tests.infra.declared import ROOT, Run, stack_of
from tests.kubernetes.entries import STACK, rendered
from tests.oracles.kubernetes import validation_error

VERSION = get_args(Kubernetes.model_fields["version"].annotation)[-1]
ACCOUNT, ARN = "123456789012", "arn:aws:sqs:us-west-2:123456789012:"


def both() -> dict[str, Any]:
    """Write a stack file with both kinds of queue on Kubernetes, and a service and a job on instances."""
    raw = copy.deepcopy(STACK)
    [service], [job] = raw["gpu-spot:services"], raw["gpu-spot:training"]
    raw["gpu-spot:services"] += [
        {**service, "name": "asr", "queue": {"kind": "sqs"}},
        {**service, "name": "near", "runsOn": "instances"},
    ]
    raw["gpu-spot:training"].append({**job, "name": "close", "runsOn": "instances"})
    raw["gpu-spot:identity"] = {"previews": {"repository": "team@1/models@2"}}
    return raw


@pytest.fixture(scope="module")
def known() -> Run:
    return stack_of(both())


@pytest.fixture(scope="module")
def unknown() -> Run:
    return stack_of(both(), "unknown")


def test_entries_are_declared_where_they_run(known: Run) -> None:
    groups = {one["name"] for one in known.declared if one["type"].endswith(":CapacityGroup")}
    assert groups == {"near", "close"}
    items = objects(known)
    assert {one["metadata"]["name"] for one in items if one["kind"] == "Deployment"} == {"ocr", "asr"}
    [job] = [one for one in items if one["kind"] == "Job"]
    assert job["metadata"]["labels"]["gpu-spot/group"] == "resnet"


def objects(of: Run) -> list[dict[str, Any]]:
    return [one["inputs"] for one in of.declared if one["type"].startswith("kubernetes:")]


def test_objects_are_valid_and_have_the_ids_of_aws(known: Run) -> None:
    assert not [why for one in objects(known) if (why := validation_error(one, VERSION))]
    assert "fs-0a1b2c::fsap-0a1b2c" in json.dumps(objects(known))


def test_a_preview_without_outputs_declares_the_same(known: Run, unknown: Run) -> None:
    assert unknown.identities() == known.identities()
    with_unknowns = {one["kind"] for one in objects(unknown) if "<unknown>" in json.dumps(one)}
    assert not with_unknowns & {
        "Namespace",
        "NodePool",
        "ClusterQueue",
        "StorageClass",
        "VolumeSnapshotContent",
    }
    assert all("<unknown>" not in json.dumps(one["metadata"]) for one in objects(unknown))


def test_the_queue_watcher_counts_workers_for_keda(known: Run) -> None:
    variables = known.the("Function", "queues")["environment"]["variables"]
    queues = watched_queue.parse(variables[names.ENV_QUEUES])
    assert {queue.group: queue.requests_per_worker for queue in queues} == {"ocr": 5, "asr": 5, "near": 0}


def documents(of: Run, name: str) -> list[dict[str, Any]]:
    return [of.policy(name)]


def test_a_services_pods_may_read_their_queue_only(known: Run) -> None:
    secret = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:brokers/"
    reads = documents(known, "ocr-pods")
    assert iam.allowed_actions(reads) == {"secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"}
    assert iam.allows(reads, iam.Request("secretsmanager:GetSecretValue", f"{secret}ocr-a1B2c3"))
    assert not iam.allows(reads, iam.Request("secretsmanager:GetSecretValue", f"{secret}asr-a1B2c3"))
    [allowed] = documents(known, "asr-pods")
    near = {one["Sid"]: one for one in allowed["Statement"]}
    assert set(near) == {
        "WorkOnQueue",
        "BuryRequests",
        "SendAnswers",
    }  # as an instance's, by the same function
    assert not [one for one in known.of("RolePolicy") if "resnet" in one]  # a job has no role


def test_pods_are_created_after_their_role_is_theirs_and_deleted_before_it(known: Run) -> None:
    """EKS injects credentials when a pod is created: one from before never works on its queue."""
    for one in known.declared:
        if one["type"].endswith(":Deployment"):
            assert {"ocr-pods", "asr-pods"} <= {*one["dependencies"]}


def test_workers_stay_when_a_service_begins_to_scale() -> None:
    """Server-side apply sets a field that its only owner omits to its default: one worker."""
    raw = both()
    raw["gpu-spot:services"][0] |= {"scaling": None}
    ignored = {
        one["name"].rpartition("-")[2]: one["ignore_changes"]
        for one in stack_of(raw).declared
        if one["type"].endswith(":Deployment")
    }
    assert ignored == {"ocr": [], "asr": ["spec.replicas"]}


def test_pods_without_permissions_are_replaced_when_they_get_some() -> None:
    permissions = [{"actions": ["s3:GetObject"], "resources": ["arn:aws:s3:::models/*"]}]
    before, after = (
        {
            one["kind"]: one["spec"]["template"]
            for one in rendered(job=changes, service=changes)
            if one["kind"] in ("Job", "Deployment")
        }
        for changes in ({}, {"permissions": permissions})
    )
    assert not [kind for kind in before if before[kind] == after[kind]]


def test_a_role_trusts_one_service_account_of_one_cluster(known: Run) -> None:
    trust = json.loads(known.the("Role", "ocr-pods")["assumeRolePolicy"])
    [statement] = trust["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(statement["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    association = known.the("PodIdentityAssociation", "ocr-pods")
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": association["clusterName"],
        "aws:RequestTag/kubernetes-namespace": association["namespace"],
        "aws:RequestTag/kubernetes-service-account": association["serviceAccount"],
        "aws:SourceAccount": ACCOUNT,
    }
    assert (association["clusterName"], association["serviceAccount"]) == ("research", "ocr")


def test_a_preview_may_describe_that_cluster_only(known: Run) -> None:
    action, arn = "eks:DescribeCluster", f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/"
    assert iam.allows(documents(known, "previews"), iam.Request(action, f"{arn}research"))
    assert not iam.allows(documents(known, "previews"), iam.Request(action, f"{arn}other"))


def test_policies_of_components_allow_metrics_and_this_access_point(known: Run) -> None:
    policies = {
        name: [json.loads(known.the("Policy", f"kubernetes-{name}")["policy"])]
        for name in ("keda", "efs-csi")
    }
    assert known.exports["kubernetes"]["policies"].keys() == policies.keys()
    assert iam.allowed_actions(policies["keda"]) == {"cloudwatch:GetMetricData"}
    files = known.the("Policy", "kubernetes-efs-csi")["policy"]
    point = {"elasticfilesystem:AccessPointArn": ["arn:gpu-spot-dev-files-checkpoints"]}
    other = {"elasticfilesystem:AccessPointArn": ["arn:gpu-spot-dev-files-other"]}
    [system] = json.loads(files)["Statement"][0]["Resource"]
    mount = "elasticfilesystem:ClientMount"
    assert iam.allows(policies["efs-csi"], iam.Request(mount, system, point))
    assert not iam.allows(policies["efs-csi"], iam.Request(mount, system, other))


def deployed_twice() -> list[str]:
    config = StackConfig("gpu-spot", "dev", ROOT / "infra", both())
    with sandbox(config.region) as clients:
        deployment = deploy(clients, config)
        api = deployment.clusters["research"]
        assert not [error for key in api if (error := validation_error(api.read(key), VERSION))]
        _let_controllers_write(api)
        return [str(one) for one in changes(deployment, config)]


def _let_controllers_write(api: ApiServer) -> None:
    """Let KEDA's scaler, Kueue's webhook and Karpenter's hash of a pool set their fields."""
    changed = {
        "Deployment": ("keda", {"spec": {"replicas": 3}}),
        "Job": ("kueue", {"spec": {"suspend": True}}),
        "NodePool": ("karpenter", {"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}}}),
    }
    for key in api:
        if key.kind in changed:
            manager, fields = changed[key.kind]
            api.take(manager, key, fields)


def test_it_deploys_and_a_second_update_changes_nothing() -> None:
    assert apart(deployed_twice) == []
