"""Mistakes that reviewers must be stopped at, each in ten or more forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from policy.rules.model import Subject
from tests.policy.cases import AWS_POLICY, TAGS, Form, allowing, group, subject, template
from tests.policy.strangers import STRANGERS

_RESOURCE: Final = "arn:aws:s3:::data/*"
_ROOT: Final = {"AWS": "arn:aws:iam::123456789012:root"}


def _inline(kind: str, **statement: Any) -> list[Subject]:
    """The statement in a policy of a role, user or group, or inside a role."""
    if kind == "Role":
        document = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", **statement}})
        return [subject("Role", inlinePolicies=[{"name": "own", "policy": document}], tags=TAGS)]
    return [allowing(kind, **statement)]


def _wildcard_actions() -> list[Form]:
    written = ("*", "*:*", "s3:*", "ec2:Run*", "iam:Create?ole", "IAM:*", "ec2:*Instances")
    actions = (*written, ["ec2:RunInstances", "sts:*"])
    kinds = ("RolePolicy", "Policy")
    return [
        ("no-wildcards", [allowing(kind, Action=a, Resource=_RESOURCE)]) for a in actions for kind in kinds
    ]


def _pass_role() -> list[Form]:
    roles = ("arn:aws:iam::*:role/*", "arn:aws:iam::123456789012:role/*", "arn:aws:iam::123456789012:*")
    resources = ("*", ["*"], *roles)
    actions = ("iam:PassRole", "IAM:passrole", ["ec2:DescribeInstances", "iam:PassRole"])
    return [("no-wildcards", [allowing(Action=a, Resource=r)]) for a in actions for r in resources]


def _administrators() -> list[Form]:
    names = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "job-function/SystemAdministrator")
    arns = [f"{AWS_POLICY}{name}" for name in names] + ["arn:aws-us-gov:iam::aws:policy/AdministratorAccess"]
    kinds = ("RolePolicyAttachment", "UserPolicyAttachment", "GroupPolicyAttachment", "PolicyAttachment")
    attached = [("managed-policies", [subject(kind, policyArn=arn)]) for kind in kinds for arn in arns]
    lists = [
        subject("Role", managedPolicyArns=arns, tags=TAGS),
        subject("RolePolicyAttachmentsExclusive", policyArns=arns),
    ]
    return [*attached, *(("managed-policies", [each]) for each in lists)]


def _owners() -> list[Form]:
    """Wildcards for the account's root, which only a key's policy may have; policies as objects, too."""
    statement = {"Effect": "Allow", "Principal": _ROOT, "Action": "sqs:*", "Resource": "*"}
    kinds = ("QueuePolicy", "TopicPolicy", "BucketPolicy", "SecretPolicy", "RepositoryPolicy")
    documents: tuple[Any, ...] = ({"Statement": [statement]}, json.dumps({"Statement": statement}))
    return [("no-wildcards", [subject(kind, policy=document)]) for kind in kinds for document in documents]


def _inline_everything() -> list[Form]:
    kinds = ("Role", "RolePolicy", "UserPolicy", "GroupPolicy", "Policy")
    pairs: tuple[dict[str, Any], ...] = (
        {"Action": "*", "Resource": "*"},
        {"Action": ["ec2:RunInstances"], "Resource": "*"},
        {"NotAction": "iam:DeleteRole", "Resource": "*"},
        {"Action": "ec2:RunInstances", "NotResource": "arn:aws:s3:::data"},
    )
    return [("no-wildcards", _inline(kind, **pair)) for kind in kinds for pair in pairs]


def _open(rules: Sequence[str], key: str, keys: str) -> list[Form]:
    """Ranges that add up to the internet, in one resource and in several rules of one group."""
    inline = subject("SecurityGroup", ingress=[{"fromPort": 22, keys: [cidr]} for cidr in rules], tags=TAGS)
    together = subject("SecurityGroup", ingress=[{keys: list(rules)}], tags=TAGS)
    default = subject("SecurityGroupRule", type="ingress", securityGroupId="sg-1", **{keys: list(rules)})
    parts = [
        subject("SecurityGroupIngressRule", f"part-{n}", securityGroupId="sg-1", **{key: cidr})
        for n, cidr in enumerate(rules)
    ]
    here, in_total = "no-ingress-from-anywhere", "no-ingress-in-total"
    return [(here, [inline]), (here, [together]), (here, [default]), (in_total, parts)]


def _open_to_ipv4() -> list[Form]:
    quarters = [f"{64 * n}.0.0.0/2" for n in range(4)]
    eighths = [f"{32 * n}.0.0.0/3" for n in range(8)]
    halves = ["0.0.0.0/1", "128.0.0.0/1"]
    unions = (["0.0.0.0/0"], halves, quarters, eighths, halves[:1], ["10.0.0.0/8", "1.2.3.4/0"])
    return [form for union in unions for form in _open(union, "cidrIpv4", "cidrBlocks")]


def _open_to_ipv6() -> list[Form]:
    unions = (["::/0"], ["::/1", "8000::/1"], ["2000::/3"], ["fd00::/8", "::/0"])
    return [form for union in unions for form in _open(union, "cidrIpv6", "ipv6CidrBlocks")]


def _public_functions() -> list[Form]:
    urls = [
        subject("FunctionUrl", authorizationType=kind, qualifier=qualifier)
        for kind in ("NONE", "none", None)
        for qualifier in ("live", "$LATEST")
    ]
    permissions = [
        subject("Permission", principal="*", action=action, **more)
        for action in ("lambda:InvokeFunction", "lambda:InvokeFunctionUrl")
        for more in ({}, {"functionUrlAuthType": "NONE"})
    ]
    permissions += [
        subject("Permission", principal=f"{name}.amazonaws.com", action="lambda:InvokeFunction")
        for name in ("s3", "sns", "events")
    ]
    return [("no-public-endpoints", [each]) for each in (*urls, *permissions)]


def _public_principals() -> list[Form]:
    kinds = ("BucketPolicy", "QueuePolicy", "TopicPolicy", "SecretPolicy", "RepositoryPolicy", "Key")
    principals: tuple[Any, ...] = ("*", {"AWS": "*"}, {"AWS": ["arn:aws:iam::123456789012:root", "*"]})
    conditions: tuple[Any, ...] = (
        None,
        {"StringLike": {"aws:SourceVpc": "vpc-*"}},
        {"StringLike": {"aws:SourceVpce": "vpce-?????????????????"}},
        {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::acme-*"}},
        {"Bool": {"aws:SecureTransport": "true"}},
        {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}},
    )
    return [
        (
            "no-wildcards",
            [allowing(kind, Principal=principal, Action="kms:Decrypt", Resource="*", Condition=condition)],
        )
        for kind in kinds
        for principal in principals
        for condition in conditions
    ]


def _unencrypted() -> list[Form]:
    off: tuple[Any, ...] = (False, "false", None)
    disks = [
        template(blockDeviceMappings=[{"deviceName": "/dev/sdf", "ebs": {"encrypted": value}}])
        for value in off
    ]
    roots = [subject("Instance", rootBlockDevice={"encrypted": value}, tags=TAGS) for value in off]
    more = [subject("Instance", ebsBlockDevices=[{"encrypted": value}], tags=TAGS) for value in off]
    volumes = [
        subject(kind, encrypted=value, tags=TAGS) for kind in ("Volume", "FileSystem") for value in off
    ]
    databases = [subject("RdsInstance", engine="postgres", storageEncrypted=value) for value in off]
    return [("encrypted", [each]) for each in (*disks, *roots, *more, *volumes, *databases)]


def _imds_v1() -> list[Form]:
    options: tuple[Any, ...] = (
        *(None, {}, {"httpTokens": "optional"}, {"httpTokens": None}, {"httpEndpoint": "enabled"}),
        *({"httpPutResponseHopLimit": 2}, {"httpTokens": "Optional"}),
    )
    templates = [template(metadataOptions=value) for value in options]
    instances = [
        subject("Instance", metadataOptions=value, rootBlockDevice={"encrypted": True}) for value in options
    ]
    return [("imdsv2", [each]) for each in (*templates, *instances)]


def _public_clusters() -> list[Form]:
    anywhere = (["0.0.0.0/0"], ["0.0.0.0/1", "128.0.0.0/1"], ["10.0.0.0/8", "0.0.0.0/0"])
    networks = [
        {"endpointPublicAccess": flag, "publicAccessCidrs": ranges}
        for flag in (None, True)
        for ranges in (None, [], *anywhere)
    ]
    return [("no-public-endpoints", [subject("Cluster", vpcConfig=network)]) for network in networks]


def _public_brokers() -> list[Form]:
    kinds = ("Broker", "RdsInstance", "Instance", "Cluster", "Table")
    return [
        ("no-public-endpoints", [subject(kind, publiclyAccessible=value, tags=TAGS)])
        for kind in kinds
        for value in (True, "true")
    ]


def _public_buckets() -> list[Form]:
    keys = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    blocks = [
        subject("BucketPublicAccessBlock", **(dict.fromkeys(keys, True) | {key: value}))
        for key in keys
        for value in (False, None)
    ]
    acls = [
        subject(kind, acl=acl)
        for kind in ("Bucket", "BucketAcl")
        for acl in ("public-read", "public-read-write", "authenticated-read")
    ]
    return [("no-public-endpoints", [each]) for each in (*blocks, *acls)]


def _untagged() -> list[Form]:
    kinds = ("Bucket", "FileSystem", "LaunchTemplate", "Queue", "SecurityGroup", "SpotFleetRequest", "Table")
    tags: tuple[Any, ...] = (None, {"owner": "us"})
    return [("tags", [subject(kind, tags=value)]) for kind in kinds for value in tags]


def _above_the_ceiling() -> list[Form]:
    sizes = [(types, size) for types in (1, 2, 3) for size in (10, 11, 50, 999)]
    return [("on-demand-ceiling", [group(types=types, spot=False, most=size)]) for types, size in sizes]


def _outside_the_regions() -> list[Form]:
    kinds = "Bucket Broker Cluster FileSystem Group Instance Key Queue Table Volume Role"
    return [("regions", [subject(kind, region="ap-south-2", tags=TAGS)]) for kind in kinds.split()]


def _outside_the_types() -> list[Form]:
    name = "p5.48xlarge"
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.xlarge", name]}
    pool = {"template": {"spec": {"requirements": [requirement]}}}
    config = {"overrides": [{"instanceType": "g6.xlarge"}, {"instanceType": name}]}
    policy = {"launchTemplate": {"overrides": config["overrides"]}}
    open_choice: dict[str, Any] = {
        "launchTemplate": {"overrides": [{"instanceRequirements": {"vcpuCount": {"min": 4}}}]}
    }
    choice = {"launchTemplate": {"overrides": [{"instanceRequirements": {"allowedInstanceTypes": ["p5*"]}}]}}
    programs = [
        subject("Group", mixedInstancesPolicy=policy),
        subject("Group", mixedInstancesPolicy=open_choice),
        subject("Group", mixedInstancesPolicy=choice),
        subject("SpotFleetRequest", launchTemplateConfigs=[config]),
        subject("SpotFleetRequest", launchSpecifications=[{"instanceType": name}]),
        subject("LaunchTemplate", instanceType=name),
        subject("LaunchTemplate", instanceRequirements={"vcpuCount": {"min": 4}}),
        subject("Instance", instanceType=name),
        subject("NodeGroup", instanceTypes=[name]),
        subject("NodePool", spec=pool),
    ]
    return [("instance-types", [each]) for each in programs]


def _prefix_lists() -> list[Form]:
    lists = ("pl-00000001", "com.amazonaws.global.cloudfront.origin-facing", "pl-4fa04526", "pl-3b927c52")
    rules = [subject("SecurityGroupIngressRule", f"p-{n}", prefixListId=one) for n, one in enumerate(lists)]
    groups = [subject("SecurityGroup", ingress=[{"prefixListIds": [one]}], tags=TAGS) for one in lists]
    older = [subject("SecurityGroupRule", type="ingress", prefixListIds=[one]) for one in lists]
    return [("no-ingress-from-anywhere", [each]) for each in (*rules, *groups, *older)]


def _older_launches() -> list[Form]:
    specification = {"instanceType": "g6.xlarge", "rootBlockDevices": [{"encrypted": True}]}
    configurations = [
        subject("LaunchConfiguration", metadataOptions=value, rootBlockDevice={"encrypted": True})
        for value in (None, {}, {"httpTokens": "optional"}, {"httpEndpoint": "enabled"})
    ]
    fleets = [
        subject("SpotFleetRequest", launchSpecifications=[specification] * count, tags=TAGS)
        for count in (1, 2, 3, 4)
    ]
    nodes = subject("EC2NodeClass", spec={"metadataOptions": {"httpTokens": "optional"}})
    disks: tuple[dict[str, Any], ...] = ({"encrypted": False}, {}, {"encrypted": None})
    plain = [
        subject("LaunchConfiguration", metadataOptions={"httpTokens": "required"}, rootBlockDevice=disk)
        for disk in disks
    ]
    return [
        *(("imdsv2", [each]) for each in (*configurations, *fleets, nodes)),
        *(("encrypted", [each]) for each in (*plain[:1], *plain[2:], nodes)),
    ]


def _grants() -> list[Form]:
    groups = [f"http://acs.amazonaws.com/groups/global/{name}" for name in ("AllUsers", "AuthenticatedUsers")]
    grants = [
        subject(kind, **{key: value}, tags=TAGS)
        for uri in groups
        for kind, key, value in (
            ("Bucket", "grants", [{"type": "Group", "uri": uri, "permissions": ["READ"]}]),
            ("BucketAcl", "accessControlPolicy", {"grants": [{"grantee": {"type": "Group", "uri": uri}}]}),
        )
    ]
    objects = [subject("BucketObjectv2", acl=acl) for acl in ("public-read", "authenticated-read")]
    open_block = {"publicAccessBlockConfiguration": {"blockPublicPolicy": False}}
    others = [
        subject("AccessPoint", **open_block),
        subject("AmiLaunchPermission", group="all"),
        subject("BucketAclV2", acl="Public-Read"),
        subject("EventPermission", principal="*"),
        subject("NodeGroup", remoteAccess={"ec2SshKey": "key"}),
        subject("RdsSnapshot", sharedAccounts=["all"]),
        subject("VpcEndpointServiceAllowedPrincipal", principalArn="*"),
        subject("Document", permissions={"type": "Share", "accountIds": "All"}, tags=TAGS),
        subject("PublicRepository", tags=TAGS),
        subject("Permission", principal="*", action="lambda:InvokeFunction", sourceArn="*"),
        subject("Permission", principal="*", action="lambda:InvokeFunction", sourceArn="arn:aws:sns:*:*:*"),
    ]
    return [("no-public-endpoints", [each]) for each in (*grants, *objects, *others)]


MISTAKES: Final = STRANGERS | {
    "prefix lists": _prefix_lists(),
    "launch configurations and specifications": _older_launches(),
    "grants and shares": _grants(),
    "wildcard actions": _wildcard_actions(),
    "iam:PassRole on all roles": _pass_role(),
    "AdministratorAccess": _administrators(),
    "everything allowed inline": _inline_everything(),
    "wildcards for the account": _owners(),
    "open to IPv4": _open_to_ipv4(),
    "open to IPv6": _open_to_ipv6(),
    "public functions": _public_functions(),
    "public principals": _public_principals(),
    "unencrypted disks": _unencrypted(),
    "IMDSv1": _imds_v1(),
    "public Kubernetes API": _public_clusters(),
    "public brokers and databases": _public_brokers(),
    "public buckets": _public_buckets(),
    "no tags": _untagged(),
    "above the On-Demand ceiling": _above_the_ceiling(),
    "outside the regions": _outside_the_regions(),
    "outside the instance types": _outside_the_types(),
}
CONFIG: Final[dict[str, Any]] = {
    "on-demand-ceiling": {"enforcementLevel": "mandatory", "maximumUsdPerHour": 7},
    "regions": {"allowed": ["us-west-2", "eu-west-1"]},
    "instance-types": {"allowed": ["g5.*", "g6.*"]},
}
"""An environment's settings, as in ``policy/config/``."""
