"""EKS: what it offers, and a cluster that its tests share."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from botocore.signers import RequestSigner

from gpu_spot.aws_check import roles
from gpu_spot.aws_check.assumption import BilledResource, assumes
from gpu_spot.aws_check.aws_test_bed import TAG, AwsTestBed, Falsified
from infra.catalogue import price_tables
from infra.components.cluster.addons import BEFORE_NODES
from infra.iam.cluster_statements import CONTROL_PLANE, NODE

_GUIDE: Final = "EKS guide"
_ENTRIES: Final = f'{_GUIDE}, "Grant IAM users access to Kubernetes with EKS access entries"'
_ADDONS: Final = (*BEFORE_NODES, "coredns", "aws-ebs-csi-driver", "aws-efs-csi-driver")
_NODE_TYPE: Final = "t3.medium"
_CLUSTER: Final = BilledResource("cluster", {price_tables.EKS_CLUSTER: 3.0})
_NODE: Final = BilledResource("node", {_NODE_TYPE: 1.0, price_tables.PUBLIC_IPV4: 1.0})
_NO_API: Final = "moto's clusters have no Kubernetes API"
_IMAGE: Final = (
    "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
)
_NODE_DATA: Final = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: {name}
    apiServerEndpoint: {endpoint}
    certificateAuthority: {authority}
    cidr: {cidr}

--//--
"""


def _attach(test_bed: AwsTestBed, suffix: str, policies: tuple[str, ...]) -> None:
    iam, name = test_bed.clients("iam"), test_bed.resource_name(suffix)
    for policy in policies:
        iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:{test_bed.partition}:iam::aws:policy/{policy}")


def _cluster(test_bed: AwsTestBed) -> Mapping[str, Any]:
    """Return the run's cluster once it is active; the first test creates it as the stack does."""
    client, name = test_bed.clients("eks"), test_bed.resource_name("cluster")
    if name not in client.list_clusters()["clusters"]:
        role = roles.create_role(test_bed, "control-plane", roles.trust("eks.amazonaws.com"))
        _attach(test_bed, "control-plane", CONTROL_PLANE)
        client.create_cluster(
            name=name,
            roleArn=role,
            resourcesVpcConfig={"subnetIds": list(test_bed.subnets.values())[:3]},
            accessConfig={"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
            bootstrapSelfManagedAddons=False,
            upgradePolicy={"supportType": "STANDARD"},
            tags={TAG: test_bed.run},
        )

    def active() -> Mapping[str, Any] | None:
        cluster: Mapping[str, Any] = client.describe_cluster(name=name)["cluster"]
        return cluster if cluster["status"] == "ACTIVE" else None

    return test_bed.wait_until(active, "the cluster is active", 1800)


def _kubernetes(test_bed: AwsTestBed, cluster: Mapping[str, Any], path: str) -> tuple[int, Any]:
    """Request a path of the cluster's API with the caller's credentials; return status and JSON."""
    authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
    request = urllib.request.Request(cluster["endpoint"] + path)  # noqa: S310 - the cluster's https endpoint
    request.add_header("Authorization", f"Bearer {_token(test_bed, cluster['name'])}")
    context = ssl.create_default_context(cadata=authority)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, None


def _token(test_bed: AwsTestBed, name: str) -> str:
    """Return a token of the caller (EKS guide, "Cluster authentication")."""
    sts, region = test_bed.clients("sts"), test_bed.region
    signer = RequestSigner(
        sts.meta.service_model.service_id,
        region,
        "sts",
        "v4",
        sts._request_signer._credentials,
        sts.meta.events,
    )
    request = {
        "method": "GET",
        "url": f"{sts.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": name},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=region, expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _caller_role(test_bed: AwsTestBed) -> str:
    """Return the ARN of the caller's user, or of the role of its session."""
    arn = test_bed.account.caller
    if ":assumed-role/" not in arn:
        return arn
    name = arn.split("/")[1]
    return str(test_bed.clients("iam").get_role(RoleName=name)["Role"]["Arn"])


def _grant_access(test_bed: AwsTestBed, cluster: str) -> None:
    """Make the caller an administrator of the cluster by an access entry, once."""
    client, principal = test_bed.clients("eks"), _caller_role(test_bed)
    policy = f"arn:{test_bed.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    try:
        client.create_access_entry(clusterName=cluster, principalArn=principal, type="STANDARD")
    except client.exceptions.ResourceInUseException:
        return
    client.associate_access_policy(
        clusterName=cluster, principalArn=principal, policyArn=policy, accessScope={"type": "cluster"}
    )


@assumes(
    "DescribeAddonVersions",
    "infra/components/cluster/addons.py",
    "an add-on is missing",
    unsupported_reason="moto has no DescribeAddonVersions",
)
def addons_are_offered(test_bed: AwsTestBed) -> str:
    """EKS offers each add-on of the stack under its name."""
    client = test_bed.clients("eks")
    addons = client.describe_addon_versions(maxResults=100)["addons"]
    offered = {addon["addonName"] for addon in addons}
    if missing := sorted(set(_ADDONS) - offered):
        raise Falsified(f"not offered: {', '.join(missing)}")
    return f"{len(_ADDONS)} of {len(offered)} offered add-ons"


@assumes(
    "DescribeClusterVersions",
    "gpu_spot/preflight/checks/clusters.py",
    "no version with status and date",
    unsupported_reason="moto has no DescribeClusterVersions",
)
def versions_have_an_end(test_bed: AwsTestBed) -> str:
    """DescribeClusterVersions returns versions in standard support with the date of its end."""
    versions = test_bed.clients("eks").describe_cluster_versions()["clusterVersions"]
    ends = {
        version["clusterVersion"]: f"{version['endOfStandardSupportDate']:%Y-%m-%d}"
        for version in versions
        if version.get("versionStatus") == "STANDARD_SUPPORT" and "endOfStandardSupportDate" in version
    }
    if not ends:
        raise Falsified(f"versions are {[version.get('versionStatus') for version in versions]}")
    return ", ".join(f"{version} until {end}" for version, end in sorted(ends.items()))


@assumes(
    f"{_ENTRIES}; CreateCluster, accessConfig",
    "infra/components/cluster/control_plane.py",
    "the creator has access without an entry, or none with it",
    resources=(_CLUSTER,),
    dollars=5,
    unsupported_reason=_NO_API,
)
def access_by_entries_only(test_bed: AwsTestBed) -> str:
    """In mode API without bootstrap permissions a cluster's creator has access only by an access entry."""
    cluster = _cluster(test_bed)
    before, _ = _kubernetes(test_bed, cluster, "/api/v1/nodes")
    if before not in (401, 403):
        raise Falsified(f"without an entry the API returned status {before}")
    _grant_access(test_bed, cluster["name"])
    test_bed.wait_until(
        lambda: _kubernetes(test_bed, cluster, "/api/v1/nodes")[0] == 200, "access with an entry", 180
    )
    return f"status {before} without, 200 with an entry"


def _node_role(test_bed: AwsTestBed, suffix: str = "node") -> str:
    role = roles.create_role(test_bed, suffix, roles.trust("ec2.amazonaws.com"))
    _attach(test_bed, suffix, NODE)
    return role


@assumes(
    _ENTRIES,
    "infra/components/cluster/karpenter.py",
    "it is accepted",
    resources=(_CLUSTER,),
    dollars=5,
)
def node_entries_take_no_policy(test_bed: AwsTestBed) -> str:
    """An access entry of type EC2_LINUX accepts no access policy: EKS grants what nodes need."""
    client, name = test_bed.clients("eks"), _cluster(test_bed)["name"]
    principal = _node_role(test_bed, "node-entry")
    client.create_access_entry(clusterName=name, principalArn=principal, type="EC2_LINUX")
    policy = f"arn:{test_bed.partition}:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
    return test_bed.expect_refusal(
        lambda: client.associate_access_policy(
            clusterName=name, principalArn=principal, policyArn=policy, accessScope={"type": "cluster"}
        ),
        "EC2_LINUX",
        "type",
    )


def _associate(test_bed: AwsTestBed, account: str, role: str) -> None:
    test_bed.clients("eks").create_pod_identity_association(
        clusterName=_cluster(test_bed)["name"], namespace="check", serviceAccount=account, roleArn=role
    )


@assumes(
    "CreatePodIdentityAssociation",
    "infra/components/kubernetes/pod_identity.py",
    "it is accepted",
    resources=(_CLUSTER,),
    dollars=5,
)
def pods_need_a_role_that_trusts_them(test_bed: AwsTestBed) -> str:
    """CreatePodIdentityAssociation rejects a role that does not trust pods.eks.amazonaws.com."""
    role = _node_role(test_bed, "untrusting")
    return test_bed.expect_refusal(lambda: _associate(test_bed, "untrusting", role), "trust")


@assumes(
    "CreatePodIdentityAssociation",
    "infra/components/kubernetes/pod_identity.py",
    "it is accepted",
    resources=(_CLUSTER,),
    dollars=5,
)
def one_role_for_a_service_account(test_bed: AwsTestBed) -> str:
    """A service account has at most one pod identity association."""
    role = roles.create_role(test_bed, "pod", roles.trust("pods.eks.amazonaws.com", None, "sts:TagSession"))
    _associate(test_bed, "once", role)
    return test_bed.expect_refusal(lambda: _associate(test_bed, "once", role), "exists", "already")


@assumes(
    f'{_GUIDE}, "View Amazon EKS security group requirements for clusters"',
    "infra/kubernetes/nodes.py",
    "no group has the tag",
    resources=(_CLUSTER,),
    dollars=5,
)
def tag_of_the_clusters_group(test_bed: AwsTestBed) -> str:
    """EKS tags the cluster's security group with aws:eks:cluster-name."""
    cluster, ec2 = _cluster(test_bed), test_bed.clients("ec2")
    tag = {"Name": "tag:aws:eks:cluster-name", "Values": [cluster["name"]]}
    tagged = [group["GroupId"] for group in ec2.describe_security_groups(Filters=[tag])["SecurityGroups"]]
    expected = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    if tagged != [expected]:
        raise Falsified(f"{tagged} have the tag, the cluster's group is {expected}")
    return "the cluster's group has the tag"


@assumes(
    f'{_GUIDE}, "View current cluster upgrade policy"; CreateCluster, upgradePolicy',
    "infra/components/cluster/control_plane.py",
    "another support type",
    resources=(_CLUSTER,),
    dollars=5,
    unsupported_reason="moto keeps no upgrade policy",
)
def standard_support_only(test_bed: AwsTestBed) -> str:
    """A cluster with supportType STANDARD never enters extended support, which costs more."""
    policy = _cluster(test_bed).get("upgradePolicy", {})
    if policy.get("supportType") != "STANDARD":
        raise Falsified(f"its policy is {policy}")
    return "supportType STANDARD"


@assumes(
    f'{_GUIDE}, "Amazon EKS node IAM role"; awslabs/amazon-eks-ami, nodeadm',
    "infra/iam/cluster_statements.py",
    "no node registers within ten minutes",
    resources=(_CLUSTER, _NODE),
    dollars=5,
    unsupported_reason=_NO_API,
)
def node_joins(test_bed: AwsTestBed) -> str:
    """An AL2023 node joins with nodeadm's NodeConfig, the stack's node policies and an EC2_LINUX entry."""
    ec2, iam, eks = (test_bed.clients(service) for service in ("ec2", "iam", "eks"))
    cluster, name = _cluster(test_bed), test_bed.resource_name("node")
    _grant_access(test_bed, cluster["name"])
    role = _node_role(test_bed)
    iam.create_instance_profile(InstanceProfileName=name, Tags=test_bed.tags)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    eks.create_access_entry(clusterName=cluster["name"], principalArn=role, type="EC2_LINUX")
    test_bed.clock.sleep(15)
    parameter = _IMAGE.format(version=cluster["version"])
    image = test_bed.clients("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    ec2.run_instances(
        ImageId=image,
        InstanceType=_NODE_TYPE,
        MinCount=1,
        MaxCount=1,
        SubnetId=next(iter(test_bed.subnets.values())),
        SecurityGroupIds=[cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]],
        IamInstanceProfile={"Name": name},
        TagSpecifications=test_bed.tag_specifications("instance", "volume"),
        UserData=_NODE_DATA.format(
            name=cluster["name"],
            endpoint=cluster["endpoint"],
            authority=cluster["certificateAuthority"]["data"],
            cidr=cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
        ),
    )

    def registered() -> list[str] | None:
        status, nodes = _kubernetes(test_bed, cluster, "/api/v1/nodes")
        return [node["metadata"]["name"] for node in nodes["items"]] if status == 200 else None

    started = test_bed.clock.now()
    test_bed.wait_until(registered, "a node", 600)
    return f"registered after {test_bed.clock.now() - started:.0f} s"
