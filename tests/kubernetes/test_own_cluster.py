"""A created cluster: declared resources, permissions, and its deployment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_spot.declared.stackfile import load
from infra.components.cluster import charts, job_failures
from infra.kubernetes import pods
from pulumi_on_moto import changes, deploy, sandbox
from tests import iam
from tests.apart import apart
from tests.infra.declared import ROOT, Run, stack_of
from tests.kubernetes.entries import CLUSTER, SERVICE, STACK, settings

ACCOUNT = "123456789012"
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/deploy"
CREATED = {
    **{key: value for key, value in CLUSTER.items() if key != "nodeRole"},
    "create": {
        "access": [{"role": ADMIN, "accessPolicy": "admin"}, {"role": f"arn:aws:iam::{ACCOUNT}:role/look"}],
        "allowedSources": ["10.40.0.0/16"],
    },
}


OWN = {
    **STACK,
    "gpu-spot:kubernetes": CREATED,
    "gpu-spot:services": [SERVICE, {**SERVICE, "name": "asr", "queue": {"kind": "sqs"}}],
}
"""Both kinds of queue on the cluster."""


@pytest.fixture(scope="module")
def known() -> Run:
    return stack_of(OWN)


@pytest.fixture(scope="module")
def unknown() -> Run:
    return stack_of(OWN, "unknown")


def test_its_api_is_private_and_its_creator_is_no_administrator(known: Run) -> None:
    cluster = known.the("Cluster", "cluster")
    assert cluster["vpcConfig"] | {"subnetIds": []} == {
        "subnetIds": [],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
    }
    assert cluster["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    assert cluster["upgradePolicy"] == {"supportType": "STANDARD"}
    assert cluster["encryptionConfig"]["resources"] == ["secrets"]
    entries = {one["principalArn"]: one["policyArn"] for one in known.of("AccessPolicyAssociation").values()}
    assert entries[ADMIN].endswith("/AmazonEKSClusterAdminPolicy")
    assert len(entries) == 2


def test_access_entries_have_no_order(known: Run) -> None:
    """A role has one entry: EKS refuses a second, also while the first is about to be deleted."""
    create = CREATED["create"] | {"access": CREATED["create"]["access"][::-1]}
    turned = stack_of({**OWN, "gpu-spot:kubernetes": {**CREATED, "create": create}})
    for kind in ("AccessEntry", "AccessPolicyAssociation"):
        assert turned.of(kind) == known.of(kind)


def test_pods_cannot_get_the_credentials_of_their_node(known: Run) -> None:
    options = known.the("LaunchTemplate", "system-nodes")["metadataOptions"]
    of_karpenter = [one["inputs"]["spec"] for one in known.declared if one["type"].endswith(":EC2NodeClass")]
    hops = {
        options["httpPutResponseHopLimit"],
        *(one["metadataOptions"]["httpPutResponseHopLimit"] for one in of_karpenter),
    }
    tokens = {options["httpTokens"], *(one["metadataOptions"]["httpTokens"] for one in of_karpenter)}
    assert (hops, tokens) == ({1}, {"required"})
    assert all("role" not in one and one["instanceProfile"] for one in of_karpenter)


def test_roles_of_nodes_have_the_two_managed_policies_of_nodes_only(known: Run) -> None:
    attached = [
        (name, one["policyArn"].rpartition("/")[2])
        for name, one in known.of("RolePolicyAttachment").items()
        if "nodes" in name
    ]
    assert {policy for _, policy in attached} == {
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
    }
    assert len(attached) == 4
    assert not [name for name in known.of("RolePolicy") if "nodes" in name]


def test_karpenter_passes_one_role_and_terminates_instances_of_its_cluster_only(known: Run) -> None:
    [may] = [known.policy("karpenter-pods")]
    arn = f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/i-1"
    ours = {
        "aws:ResourceTag/kubernetes.io/cluster/research": ["owned"],
        "aws:ResourceTag/karpenter.sh/nodepool": ["pool"],
    }
    theirs = {**ours, "aws:ResourceTag/kubernetes.io/cluster/research": ["shared"]}
    end = "ec2:TerminateInstances"
    assert iam.allows([may], iam.Request(end, arn, ours))
    assert not iam.allows([may], iam.Request(end, arn, theirs))
    assert not iam.allows([may], iam.Request(end, arn))
    [passed] = [one for one in may["Statement"] if one["Action"] == ["iam:PassRole"]]
    assert passed["Resource"] == ["arn:gpu-spot-dev-gpu-nodes"]
    assert not [one for one in iam.allowed_actions([may]) if one.startswith("iam:Create")]
    assert iam.allows([may], iam.Request("iam:ListInstanceProfiles", "*"))  # it looks, though it makes none


def test_every_role_of_pods_trusts_one_service_account_of_this_cluster(known: Run) -> None:
    accounts = {
        (one["namespace"], one["serviceAccount"]) for one in known.of("PodIdentityAssociation").values()
    }
    assert accounts == {
        ("gpu-spot-dev", "asr"),
        ("gpu-spot-dev", "ocr"),
        ("keda", "keda-operator"),
        ("kube-system", "aws-node"),
        ("kube-system", "ebs-csi-controller-sa"),
        ("kube-system", "efs-csi-node-sa"),
        ("kube-system", "karpenter"),
    }
    for name, one in known.of("PodIdentityAssociation").items():
        role = known.of("Role")[name]
        [statement] = json.loads(role["assumeRolePolicy"])["Statement"]
        tags = statement["Condition"]["StringEquals"]
        assert tags["aws:RequestTag/kubernetes-service-account"] == one["serviceAccount"]
        assert tags["aws:RequestTag/kubernetes-namespace"] == one["namespace"]
        assert tags["aws:RequestTag/eks-cluster-name"] == "research"


def test_the_customers_key_encrypts_disks_of_nodes_and_datasets() -> None:
    key = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/0f0e0d0c-0b0a-0908-0706-050403020100"
    keyed = stack_of({**OWN, "gpu-spot:kmsKeyArn": key})
    specs = {one["type"].rpartition(":")[2]: one["inputs"] for one in keyed.declared}
    [disk] = specs["EC2NodeClass"]["spec"]["blockDeviceMappings"]
    assert disk["ebs"]["kmsKeyID"] == key
    assert specs["StorageClass"]["parameters"]["kmsKeyId"] == key
    may = keyed.policy("karpenter-pods")
    via = {"kms:ViaService": ["ec2.us-west-2.amazonaws.com"], "kms:GrantIsForAWSResource": ["true"]}
    assert iam.allows([may], iam.Request("kms:CreateGrant", key, via))
    assert iam.allows([may], iam.Request("kms:GenerateDataKeyWithoutPlaintext", key, via))


def test_coredns_scales_with_nodes(known: Run) -> None:
    addons = {one["addonName"]: one for one in known.of("Addon").values()}
    assert json.loads(addons["coredns"]["configurationValues"]) == {"autoScaling": {"enabled": True}}


def test_the_secrets_provider_runs_on_gpu_nodes(known: Run) -> None:
    """Its chart tolerates no taint by default, and workers wait for its volume for ever."""
    addons = {one["addonName"]: one for one in known.of("Addon").values()}
    values = json.loads(addons["aws-secrets-store-csi-driver-provider"]["configurationValues"])
    [pool, *_] = [one["inputs"] for one in known.declared if one["type"].endswith(":NodePool")]
    [taint] = pool["spec"]["template"]["spec"]["taints"]
    assert values["tolerations"] == [{"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}]


def ordered_before(run: Run, last: str) -> dict[str, set[str]]:
    """Return the names by kind of all that a kind's resources depend on, which are deleted after them."""
    declared: dict[str, list[dict[str, Any]]] = {}
    for one in run.declared:
        declared.setdefault(one["name"], []).append(one)
    found: dict[str, set[str]] = {}
    names = [one["name"] for one in run.declared if one["type"].endswith(f":{last}")]
    seen = {*names}
    while names:
        for one in declared.get(names.pop(), ()):
            found.setdefault(one["type"].rpartition(":")[2], set()).add(one["name"])
            new = {*one["dependencies"]} - seen
            seen |= new
            names += new
    return found


def test_nodes_go_before_karpenter_and_after_their_pods(known: Run) -> None:
    """Else their instances would stay: Karpenter terminates them, and finalizes NodePools only then."""
    assert {"NodePool", "EC2NodeClass", "Release"} <= ordered_before(known, "Deployment").keys()
    assert {"NodePool", "Release"} <= ordered_before(known, "Job").keys()
    before = ordered_before(known, "NodePool").keys()
    assert {"EC2NodeClass", "Release", "PodIdentityAssociation", "RolePolicy", "NodeGroup"} <= before
    assert "Addon" in before
    assert not {"Deployment", "Job"} & before
    timeouts = {
        one["delete_timeout"] for one in known.declared if one["type"].endswith(":NodePool") and one["custom"]
    }
    assert timeouts == {"45m"}
    assert pods.NODE_GRACE_SECONDS < 45 * 60


@pytest.mark.parametrize("kubernetes", [CREATED, CLUSTER])
def test_routes_and_files_go_after_the_pods_and_nodes_that_need_them(kubernetes: dict[str, Any]) -> None:
    made = stack_of({**OWN, "gpu-spot:kubernetes": kubernetes})
    for last in ("NodePool", "Job"):
        before = ordered_before(made, last)
        for kind in ("Route", "VpcEndpoint", "MountTarget", "SecurityGroupIngressRule"):
            assert made.of(kind).keys() <= before[kind], (last, kind)


def test_roles_keep_their_policies_while_the_cluster_and_its_nodes_are_there(known: Run) -> None:
    """Else EKS leaves instances and interfaces, and pods lose their credentials, which come by the node."""
    of_role = {"Cluster": "control-plane-", "NodeGroup": "system-nodes-", "NodePool": "gpu-nodes-"}
    for last, role in of_role.items():
        attached = {name for name in known.of("RolePolicyAttachment") if name.startswith(role)}
        assert attached
        assert attached <= ordered_before(known, last)["RolePolicyAttachment"], last


def test_karpenter_receives_events_from_the_stacks_rules_only(known: Run) -> None:
    kinds = {
        json.loads(one["eventPattern"])["detail-type"][0]
        for name, one in known.of("EventRule").items()
        if "node-" in name
    }
    assert len(kinds) == 4
    policy = json.loads(known.the("QueuePolicy", "node-notices")["policy"])
    sender = next(one for one in policy["Statement"] if one["Effect"] == "Allow")
    assert len(sender["Condition"]["ArnEquals"]["aws:SourceArn"]) == 4


def test_a_preview_may_look_up_the_versions_of_its_addons(known: Run) -> None:
    """It looks them up for a created cluster alone, which it does not describe."""
    previews = {"previews": {"repository": "team@1/gpu-spot@2"}}
    for kubernetes, looked_up in ((CREATED, "DescribeAddonVersions"), (CLUSTER, "DescribeCluster")):
        made = stack_of({**OWN, "gpu-spot:kubernetes": kubernetes, "gpu-spot:identity": previews})
        allowed = iam.allowed_actions([made.policy("previews")])
        assert {one for one in allowed if one.startswith("eks:")} == {f"eks:{looked_up}"}


def test_a_preview_without_outputs_declares_the_same(known: Run, unknown: Run) -> None:
    assert unknown.identities() == known.identities()


def deployed_twice() -> tuple[list[str], list[str]]:
    """Deploy the sample; return the changes of a second run and the kinds of objects."""
    config = load(ROOT, "eks")
    with sandbox(config.region) as clients:
        deployment = deploy(clients, config)
        kinds = sorted({key.kind for key in deployment.clusters["gpu-spot-eks"]})
        return [str(one) for one in changes(deployment, config)], kinds


def test_the_sample_deploys_and_a_second_update_changes_nothing() -> None:
    again, kinds = apart(deployed_twice)
    assert again == []
    assert {"Deployment", "Job", "NodePool", "EC2NodeClass", "ClusterQueue", "ScaledObject"} <= {*kinds}


@pytest.mark.parametrize(
    ("nodes", "is_trainjob"),
    [(1, False), ({"min": 1, "max": 2}, False), ({"min": 2, "max": 2}, True), (2, True)],
)
def test_a_trainjob_alone_needs_trainer_and_its_failure_is_not_in_the_audit_log(
    nodes: Any, is_trainjob: bool
) -> None:
    made = settings(job={"nodes": nodes}, kubernetes=CREATED)
    assert made.kubernetes is not None
    assert job_failures.watched(made.kubernetes, made.training) == ([] if is_trainjob else ["resnet"])
    assert (charts.TRAINER in charts.needed(made)) == is_trainjob
